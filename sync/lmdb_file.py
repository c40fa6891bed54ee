"""LMDB file: a look at LMDB's file before LMDB maps it.

Two things that LMDB takes on trust are checked here, since a mapped file answers neither with an error:

  - A file shorter than its meta page says is extended with a hole: reading beyond its end then gives zeros, which the
    checksums refuse, and not a SIGBUS.
  - The transaction numbers of the two meta pages follow one another, always; if one is damaged, LMDB would take the
    older page for the newest, and a commit would silently be missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from ..volume.errors import Corrupt, Unavailable, Unsupported
from .lmdb_tree_check import PAGE_BYTES, read_metas
from .tables import HERE

_META_MAGIC: Final = 0xBEEFC0DE
_SPARE_BYTES: Final = 1 << 30
"""At the end there may be pages that were taken and given back without ever being written: not that many."""


def check_data_file(path: Path) -> None:
    """Raises Corrupt or Unsupported unless LMDB may safely map the file; extends one that was cut short."""
    for attempt in range(3):
        try:
            with open(path, "rb") as file:
                metas = file.read(2 * PAGE_BYTES)
                size = os.fstat(file.fileno()).st_size
        except FileNotFoundError:
            return
        except OSError as error:
            raise Unavailable(f"the local store at {path} can't be read: {error.strerror}") from error
        if not metas:
            return
        needed = _needed_bytes(path, metas, strict=attempt == 2)
        if needed is not None:
            break
    else:  # pragma: no cover - the third, strict attempt raises
        return
    if needed > 2 * size + _SPARE_BYTES:
        raise Corrupt(f"{HERE} {path}", f"it has {size} bytes where {needed} belong")
    if needed > size:
        try:
            os.truncate(path, needed)
        except OSError as error:
            raise Corrupt(f"{HERE} {path}", f"it has {size} bytes where {needed} belong") from error


def _needed_bytes(path: Path, metas: bytes, *, strict: bool) -> int | None:
    """How long the file must be; None if the meta pages don't agree, which may pass, since another process may be
    writing one.
    """
    if len(metas) < 2 * PAGE_BYTES:
        if strict:
            raise Corrupt(f"{HERE} {path}", f"it is cut short: {len(metas)} bytes")
        return None
    first, second = read_metas(metas)
    for meta in (first, second):
        if meta.magic != _META_MAGIC or meta.page_bytes != PAGE_BYTES:
            raise Corrupt(f"{HERE} {path}", "it does not start like an LMDB file")
        if meta.version != 1:
            raise Unsupported(f"{path} is an LMDB file of format {meta.version}; 1 is known here")
    numbers = first.transaction, second.transaction
    follow = numbers == (0, 0) or (abs(numbers[0] - numbers[1]) == 1 and not numbers[0] & 1)
    if not follow:
        if strict:
            raise Corrupt(f"{HERE} {path}", f"its meta pages hold the transactions {numbers[0]} and {numbers[1]}")
        return None
    return (max(first, second, key=lambda meta: meta.transaction).last_page + 1) * PAGE_BYTES
