"""Pages: sizes, and what a page that was never written holds."""

from __future__ import annotations

from typing import Final

from .errors import BadInput

MIN_PAGE_SIZE: Final = 512
MAX_PAGE_SIZE: Final = 65536
DEFAULT_PAGE_SIZE: Final = 4096

_ZEROS: Final = {size: bytes(size) for size in (512 << shift for shift in range(8))}


def check_page_size(size: int) -> int:
    """A power of two from 512 to 65,536; raises BadInput otherwise."""
    if size not in _ZEROS:
        raise BadInput(f"page size {size} is not a power of two from {MIN_PAGE_SIZE} to {MAX_PAGE_SIZE}")
    return size


def zeros(page_size: int) -> bytes:
    """A page that was never written."""
    return _ZEROS[page_size]
