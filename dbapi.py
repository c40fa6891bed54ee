"""`import budwood.dbapi`, for whoever names it as a module: it is vfs/dbapi.py itself."""

from __future__ import annotations

import sys

from .vfs import dbapi
from .vfs.dbapi import *  # noqa: F403

sys.modules[__name__] = dbapi
