"""`import budwood.log`, for whoever names it as a module: it is server/plain/log.py itself."""

from __future__ import annotations

import sys

from .server.plain import log
from .server.plain.log import *  # noqa: F403

sys.modules[__name__] = log
