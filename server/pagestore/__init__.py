"""The pagestore: segments are written whole and read frame by frame, through a cache (DESIGN §2, S2.19-S2.22).

It knows objects, frames and ranges, and nothing of LSNs: which location holds which page at a snapshot is the
metastore's answer (`Source`).
"""

from __future__ import annotations

from .pagestore import Pagestore
from .read import Frame, Source
from .write_segment import checked_segment

__all__ = ["Frame", "Pagestore", "Source", "checked_segment"]
