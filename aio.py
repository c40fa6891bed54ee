"""`import budwood.aio`, for whoever names it as a module: it is vfs/aio.py itself."""

from __future__ import annotations

import sys

from .vfs import aio
from .vfs.aio import *  # noqa: F403

sys.modules[__name__] = aio
