"""Mutants of the formats: what is written otherwise, and read again as it was written. Only a second reader notices."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SECOND: Final = ("tests/integration/test_second_reader.py", "-k", "every_volume or a_home")
ROLLED: Final = ("tests/integration/test_second_reader.py", "-k", "everything_that_the_document")
EXAMPLES: Final = ("tests/unit/test_formats_document.py",)

MUTANTS: Final = (
    Mutant(
        "a content item has its page's index the other way round",
        "volume/setsum.py",
        '_INDEX: Final = struct.Struct("<I")',
        '_INDEX: Final = struct.Struct(">I")',
        SECOND,
    ),
    Mutant(
        "a log item has its LSN the other way round",
        "volume/setsum.py",
        '_LSN: Final = struct.Struct("<Q")',
        '_LSN: Final = struct.Struct(">Q")',
        SECOND,
    ),
    Mutant(
        "a token is personalised otherwise",
        "volume/wire.py",
        'person=b"budwood.token"',
        'person=b"budwood.nekot"',
        EXAMPLES,
    ),
    Mutant(
        "an id has another alphabet",
        "volume/ids.py",
        '"123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"',
        '"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuv"',
        EXAMPLES,
    ),
    Mutant(
        "a segment's magic reads backwards",
        "volume/segment.py",
        'MAGIC: Final = int.from_bytes(b"BWSG", "little")',
        'MAGIC: Final = int.from_bytes(b"BWSG", "big")',
        SECOND,
    ),
    Mutant(
        "a frame has its row the other way round",
        "volume/segment.py",
        '_FRAME: Final = struct.Struct("<QQII")',
        '_FRAME: Final = struct.Struct(">QQII")',
        SECOND,
    ),
    Mutant(
        "a head has its numbers the other way round",
        "volume/envelope.py",
        '_FIXED: Final = struct.Struct("<4sHHQII")',
        '_FIXED: Final = struct.Struct(">4sHHQII")',
        EXAMPLES,
    ),
    Mutant(
        "a home's head is big-endian",
        "sync/tables.py",
        '_HEAD: Final = struct.Struct("<QQQQQIIII")',
        '_HEAD: Final = struct.Struct(">QQQQQIIII")',
        SECOND,
    ),
    Mutant(
        "a long name is cut elsewhere",
        "sync/tables.py",
        "_LONGEST_NAME: Final = 400",
        "_LONGEST_NAME: Final = 300",
        SECOND,
    ),
    Mutant(
        "a page's tail is longer",
        "sync/rows.py",
        "SPLIT_FROM: Final = 4096",
        "SPLIT_FROM: Final = 8192",
        SECOND,
    ),
    Mutant(
        "an entry's slot counts from elsewhere",
        "volume/entry.py",
        "_MAX_SLOT: Final = 2**64 - 1",
        "_MAX_SLOT: Final = 2**64 - 2",
        SECOND,
    ),
    Mutant(
        "a number in a rollup's keys reads backwards",
        "volume/rollup.py",
        'return value.to_bytes(8, "big")',
        'return value.to_bytes(8, "little")',
        ROLLED,
    ),
    Mutant(
        "a commit that cuts nothing has a floor all the same",
        "server/metastore/history.py",
        "if floor < reach else",
        "if floor <= reach else",
        ROLLED,
    ),
    Mutant(
        "a rollup tells another length before its commits",
        "server/metastore/rollup_builder.py",
        "before=state.length, record=raw",
        "before=record.length, record=raw",
        ROLLED,
    ),
    Mutant(
        "a kind is looked at by several threads at once",
        "volume/decoded_kinds.py",
        "            msgspec.msgpack.Decoder(kind)\n",
        "",
        ("tests/unit/test_decoded_kinds.py",),
    ),
)
