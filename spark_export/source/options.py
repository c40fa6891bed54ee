"""Options: what a user wrote beside `format("budwood")`, as typed values, or one clear error.

Spark hands options over as texts and without the case of their names. Every one is looked at before anything is read:
a misspelt name or a value that can't be meant must not silently become the default.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from itertools import product
from typing import Any, Final, Literal, TypeVar

from ...tables.scan_plan import Engine, Mismatch, Options, Target
from ...volume.as_of import label_of
from ...volume.errors import BadInput
from .lease import LEASE_SECONDS
from .volume_ref import CACHE_BYTES

METADATA: Final = ("history", "tables", "files", "snapshots", "pages")
Version = int | Literal["latest"]
Kind = TypeVar("Kind", bound=str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is to be read, as it was asked for. Times are milliseconds since the Unix epoch."""

    volume: str
    table: str | None = None
    query: str | None = None
    metadata: str | None = None
    pages: tuple[int, int] | None = None
    """pageRange: the first and the last index, both included."""
    remote: str | None = None
    home: str | None = None
    token: str | None = field(default=None, repr=False)
    version: int | str | None = None
    """An LSN, or the label of a named snapshot."""
    time_ms: int | None = None
    columns: tuple[str, ...] | None = None
    partitions: int | None = None
    split_bytes: int | None = None
    engine: Engine | None = None
    rowid: str | None = None
    types: Options = field(default_factory=Options)
    """`types.types` has the names as Spark lower-cased them: see scan.py."""
    feed: bool = False
    """readChangeFeed."""
    starting_version: Version | None = None
    ending_version: Version | None = None
    starting_ms: int | None = None
    ending_ms: int | None = None
    most_versions: int | None = None
    """maxVersionsPerTrigger."""
    fail_on_data_loss: bool = True
    push_down: bool = False
    """pushDownPredicate: this DataFrame serves one query."""
    lease_seconds: float = LEASE_SECONDS
    cache_bytes: int = CACHE_BYTES

    def scan_options(self) -> dict[str, Any]:
        """What a scan's plan depends on, as arguments of `scan.plan_rows` and `plan_scan`."""
        return {
            "table": self.table,
            "query": self.query,
            "columns": self.columns,
            "options": self.types,
            "rowid": self.rowid,
            "engine": self.engine,
        }

    def with_inferred(self, inferred: Mapping[str, Target]) -> Request:
        """The same, for another plan of the same table: what its columns hold is known by now."""
        return replace(self, types=replace(self.types, inferred=inferred))


def parse(options: Mapping[str, str]) -> Request:
    """Raises BadInput, which names the option and what it may be."""
    values: dict[str, Any] = {}
    types: dict[str, Any] = {}
    columns: dict[str, Target] = {}
    for key, text in options.items():
        name = key.lower()
        try:
            if name.startswith(_TYPE):
                columns[name.removeprefix(_TYPE)] = _one_of(Target)(text)
            elif name in _SHOWN:
                shown = _SHOWN[name]
                found, table = (values, _OPTIONS) if shown in _OPTIONS else (types, _TYPE_OPTIONS)
                field_name, read = table[shown]
                found[field_name] = read(text)
            else:
                raise BadInput(_unknown(key))
        except ValueError as error:
            given = "" if name == "token" else f" {text!r}"
            raise BadInput(f"option {_SHOWN.get(name, key)}{given}: {error}") from None
    if not values.get("volume"):
        raise BadInput("option volume is missing: the name of a volume, or its id")
    request = Request(types=Options(types=columns, **types), **values)
    _check_together(request)
    return request


def parse_types(options: Mapping[str, str]) -> Options:
    """Those that say how values are read, where no others have a meaning. Raises as `parse`."""
    allowed = [*_TYPE_OPTIONS, f"{_TYPE}COLUMN"]
    for key in options:
        if not key.lower().startswith(_TYPE) and _SHOWN.get(key.lower()) not in _TYPE_OPTIONS:
            raise BadInput(f"option {key} says nothing of how values are read: {', '.join(allowed)} do")
    return parse({"volume": "-", "table": "-", **options}).types


def check_read_once(request: Request) -> None:
    """What only a feed or a stream goes by would be passed over without a word: raises BadInput where it is given to
    neither."""
    for name in _OF_CHANGES:
        if getattr(request, name) is not None and not request.feed:
            raise BadInput(
                f"option {_NAMES[name]} is for changes: give readChangeFeed=true too, or name one LSN by versionAsOf"
            )
    if request.most_versions is not None or not request.fail_on_data_loss:
        name = "fail_on_data_loss" if request.most_versions is None else "most_versions"
        raise BadInput(f"option {_NAMES[name]} is for streams: use spark.readStream, or leave it out")


def _check_together(request: Request) -> None:
    whats = {"table": request.table, "query": request.query, "metadata": request.metadata}
    given = [name for name, value in whats.items() if value is not None]
    if len(given) != 1:
        named = f"not {' and '.join(given)}" if given else "and none is given"
        raise BadInput(f"one of the options table, query and metadata says what to read, {named}")
    for one, other in (
        ("version", "time_ms"),
        ("partitions", "split_bytes"),
        ("starting_version", "starting_ms"),
        ("ending_version", "ending_ms"),
        *product(("version", "time_ms"), _OF_CHANGES),
    ):
        if getattr(request, one) is not None and getattr(request, other) is not None:
            raise BadInput(f"options {_NAMES[one]} and {_NAMES[other]} exclude each other: give one of them")
    if request.feed and request.table is None:
        raise BadInput(f"option readChangeFeed follows the rows of a table: it can't follow a {given[0]}")
    if request.pages is not None and request.metadata != "pages":
        raise BadInput("option pageRange is for the metadata pages: a table's rows are parted by splitBytes")
    if request.metadata is not None:
        for name in ("columns", "engine", "rowid"):
            if getattr(request, name) is not None:
                raise BadInput(f"option {_NAMES[name]} is for tables, not for metadata: select from what is read")
    if request.query is not None:
        for name in ("partitions", "split_bytes", "rowid"):
            if getattr(request, name) is not None:
                raise BadInput(
                    f"option {_NAMES[name]} is for tables: SQLite answers a query in one piece, without rowids"
                )


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError("it is empty")
    return text


def _names(text: str) -> tuple[str, ...]:
    """Parted by commas; a name that holds one, or begins or ends with a blank, stands in double quotes."""
    found: list[str] = []
    rest = text
    while True:
        matched = _NAME.match(rest)
        if matched is None:
            raise ValueError('it must be names of columns parted by commas, like: id, price, "odd, name"')
        quoted, plain = matched.groups()
        found.append(quoted.replace('""', '"') if quoted is not None else plain.strip())
        rest = rest[matched.end() :]
        if not rest:
            return tuple(found)
        rest = rest[1:]


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not _DIGITS.fullmatch(text.strip()) or not least <= int(text) < 1 << 63:
            raise ValueError(f"it must be a whole number from {least}")
        return int(text)

    return read


def _as_of(text: str) -> int | str:
    text = text.strip()
    if text.startswith("@"):
        return label_of(text)
    try:
        return _whole(1)(text)
    except ValueError:
        raise ValueError("it must be an LSN, a whole number from 1, or @LABEL") from None


def _version(text: str) -> Version:
    if text.strip().lower() == "latest":
        return "latest"
    try:
        return _whole(1)(text)
    except ValueError:
        raise ValueError("it must be an LSN, a whole number from 1, or latest") from None


def _bytes(text: str) -> int:
    found = _SIZE.fullmatch(text.strip().lower())
    size = int(found[1]) * _UNITS[found[2]] if found else 0
    if not 0 < size < 1 << 63:
        raise ValueError("it must be bytes, like 8388608 or 8m")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if seconds != 0 and not (math.isfinite(seconds) and 1 <= seconds <= _YEAR_SECONDS):
        raise ValueError("it must be seconds, from 1 to a year of them, or 0: hold nothing")
    return seconds


def _flag(text: str) -> bool:
    try:
        return {"true": True, "false": False}[text.strip().lower()]
    except KeyError:
        raise ValueError("it must be true or false") from None


def _time(text: str) -> int:
    """The last millisecond that is not later than a time.

    A time names an instant: workers on other machines have other local times, so the offset belongs to it.
    """
    return _microseconds(text) // 1000


def _first_time(text: str) -> int:
    """The first millisecond that is not earlier."""
    return -(-_microseconds(text) // 1000)


def _microseconds(text: str) -> int:
    try:
        at = datetime.fromisoformat(text.strip())
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError("it must be a time with its offset, like 2030-01-31T12:00:00Z or 2030-01-31 13:00:00+01:00")
    return (at - _EPOCH) // timedelta(microseconds=1)


def _one_of(kinds: Iterable[Kind]) -> Callable[[str], Kind]:
    allowed = {str(kind): kind for kind in kinds}

    def read(text: str) -> Kind:
        try:
            return allowed[text.strip().lower()]
        except KeyError:
            raise ValueError(f"it must be one of {', '.join(allowed)}") from None

    return read


def _pages(text: str) -> tuple[int, int]:
    found = _PAGES.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last < 1 << 32:
        raise ValueError("it must be the first and the last page, counted from 1, like 1-1000, or one page, like 7")
    return first, last


_PAGES: Final = re.compile(r"(\d{1,10})(?:\s*-\s*(\d{1,10}))?", re.ASCII)
_DIGITS: Final = re.compile(r"\d{1,19}", re.ASCII)
_SIZE: Final = re.compile(r"(\d{1,18})\s*(|b|k|kb|kib|m|mb|mib|g|gb|gib)", re.ASCII)
_UNITS: Final = {"": 1, "b": 1} | {
    f"{unit}{tail}": 1 << (10 * place) for place, unit in enumerate("kmg", 1) for tail in ("", "b", "ib")
}
_NAME: Final = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^",\s][^",]*))\s*(?=,|$)')
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_SECONDS: Final = 366 * 86_400.0
_TYPE: Final = "type."
_OF_CATALOG: Final = "option."
"""CREATE TABLE gives each option a second time, with this before its name."""
_OF_CHANGES: Final = ("starting_version", "starting_ms", "ending_version", "ending_ms")
_CLASSES: Final = (Target.LONG, Target.DOUBLE, Target.STRING, Target.BINARY, Target.TEXT)

_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "volume": ("volume", _text),
    "table": ("table", _text),
    "query": ("query", _text),
    "metadata": ("metadata", _one_of(METADATA)),
    "pageRange": ("pages", _pages),
    "remote": ("remote", _text),
    "home": ("home", _text),
    "token": ("token", str),
    "versionAsOf": ("version", _as_of),
    "timestampAsOf": ("time_ms", _time),
    "columns": ("columns", _names),
    "numPartitions": ("partitions", _whole(1)),
    "splitBytes": ("split_bytes", _bytes),
    "engine": ("engine", _one_of(Engine)),
    "rowIdColumn": ("rowid", _text),
    "readChangeFeed": ("feed", _flag),
    "startingVersion": ("starting_version", _version),
    "endingVersion": ("ending_version", _version),
    "startingTimestamp": ("starting_ms", _first_time),
    "endingTimestamp": ("ending_ms", _time),
    "maxVersionsPerTrigger": ("most_versions", _whole(1)),
    "failOnDataLoss": ("fail_on_data_loss", _flag),
    "pushDownPredicate": ("push_down", _flag),
    "leaseSeconds": ("lease_seconds", _seconds),
    "cacheBytes": ("cache_bytes", _bytes),
}
_TYPE_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "typeMismatch": ("mismatch", _one_of(Mismatch)),
    "numericAs": ("numeric", _one_of(_CLASSES)),
    "untypedAs": ("untyped", _one_of(_CLASSES)),
    "decimals": ("decimals", _flag),
    "booleans": ("booleans", _flag),
    "dates": ("dates", _flag),
    "timestamps": ("timestamps", _flag),
}
_SHOWN: Final = {name.lower(): name for name in (*_OPTIONS, *_TYPE_OPTIONS)}
"""How Spark spells a name, and how it is spelled."""
_NAMES: Final = {field_name: name for name, (field_name, _) in _OPTIONS.items()}


def _unknown(key: str) -> str:
    if key.lower() == "path":
        return "load() takes no path: name the volume and the table by the options volume and table"
    if key.lower().startswith(_OF_CATALOG):
        return "Spark's catalog can't keep a volume's table: CREATE TEMPORARY VIEW … USING budwood OPTIONS (…)"
    near = get_close_matches(key.lower(), _SHOWN, 1)
    hint = f"did you mean {_SHOWN[near[0]]}?" if near else f"there are {', '.join(_SHOWN.values())} and type.COLUMN"
    return f"option {key} is unknown: {hint}"
