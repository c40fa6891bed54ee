"""Limits: how much of what a client sends is kept for good. docs/formats.md has the same table.

A record stays in its log, and everybody who reads the log reads it again: so what one client may put into a record
must not be more than any other can read, hold and pass on. Admission refuses what goes beyond, on a node and in an
embedded process alike; clients look before they send. A reader applies none of this: what stands already stays
readable, but for attributes that are nested too deep, which are read as none.

Ids, digests and tokens have one length each, and are checked as what they are. A name's attributes: name_attributes.py.
A pin's owner: pins.py.
"""

from __future__ import annotations

from typing import Final

MOST_NAME_BYTES: Final = 1024
MOST_PART_BYTES: Final = 255
"""Of a name, between two '/'."""
MOST_NAMES: Final = 1_000_000
"""In one namespace: an edge that has it holds all of it."""

MOST_NONCE_BYTES: Final = 64
MOST_BINDINGS_BYTES: Final = 64 * 1024
MOST_SOURCES: Final = 256
"""Of one volume: how far each has come is in every rollup of the volume's log."""
MOST_SOURCE_BYTES: Final = 255
MOST_LOCATIONS: Final = 16_384
"""In one commit: at 8 MiB a segment, 128 GiB. Whoever replays the log reads and sums them all."""

MOST_SEGMENT_BYTES: Final = 128 * 1024 * 1024
"""Of a segment's pages, unpacked, where a client sends it: however little room a page takes in it, whoever reads it
unpacks it, and what is known of it takes some hundred bytes of memory meanwhile."""

MOST_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""An answer that lists names or commits ends once it has so many; the caller asks for the rest."""
