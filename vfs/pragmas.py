"""Pragmas: those that a volume answers itself, and those that it overhears.

budwood_status, _snapshot, _log, _bind, _push, _pull, _fetch
                    one text: a JSON array with an object for each row. Within a transaction, _snapshot tells of the
                    view that it reads from; all else of how the volume stands
budwood_synchronous_commit
                    1 or 0: whether COMMIT returns only once the remote has acknowledged the commit; `= on` or `= off`
                    settles it for this connection
synchronous = …     passed on to SQLite; says how durable a commit has to be
page_size = …       passed on; settles the page size of a volume that has no commit; refused as a change of one that has
journal_mode = OFF  refused: without a journal SQLite keeps the rows of a statement that failed
journal_mode = WAL  passed on; SQLite answers the mode that stays in force. Nothing is lost: readers never wait
locking_mode = …    answered "normal": a lock that outlives its transaction would keep every other writer out
"""

from __future__ import annotations

import msgspec

from ..volume.errors import BadInput
from ..volume.page import MAX_PAGE_SIZE, MIN_PAGE_SIZE
from ..volume.protocols import Durability, Pages, Row, Snapshot

_PREFIX = "budwood_"
_SYNCHRONOUS_COMMIT = _PREFIX + "synchronous_commit"
_ON, _OFF = frozenset({"1", "on", "yes", "true"}), frozenset({"0", "off", "no", "false"})
_VERBS = frozenset({"status", "snapshot", "log", "bind", "push", "pull", "fetch"})
_ALL = ", ".join(sorted([*(_PREFIX + verb for verb in _VERBS), _SYNCHRONOUS_COMMIT]))
_MOVING = frozenset({"push", "pull", "fetch"})
_RELAXED = frozenset({"0", "1", "off", "normal", "no", "false", "on", "yes", "true"})
"""What `synchronous` takes for OFF and NORMAL, in SQLite's spelling: a boolean word is 0 or 1."""


class Pragmas:
    """One connection's. `page_size` is what was wished for a volume without one, in bytes."""

    __slots__ = ("_pages", "durability", "page_size", "synchronous_commit")

    def __init__(self, pages: Pages, *, synchronous_commit: bool = False) -> None:
        self._pages = pages
        self.durability = Durability.DURABLE
        self.page_size: int | None = None
        self.synchronous_commit = synchronous_commit

    def answer(self, name: str, value: str | None, *, view: Snapshot | None, writing: bool) -> str | None:
        """The pragma's one result, or None to let SQLite go on with it. `view` is what the transaction sees, if there
        is one. Raises BadInput and what the volume raises.
        """
        name = name.lower()
        if name == _SYNCHRONOUS_COMMIT:
            return self._settle_synchronous_commit(value)
        if name.startswith(_PREFIX):
            return self._ask(name.removeprefix(_PREFIX), value, view, writing=writing)
        if value is None:
            return None
        word = value.strip("'\" ").lower()
        match name:
            case "synchronous":
                self.durability = Durability.ORDERED if word in _RELAXED else Durability.DURABLE
            case "page_size":
                self._wish(word)
            case "journal_mode" if word == "off":
                raise BadInput(
                    "journal_mode=OFF is refused on a volume: a statement that fails would keep half its rows; "
                    "DELETE and MEMORY cost no disk writes here"
                )
            case "locking_mode":
                return "normal"
            case _:
                pass
        return None

    def _settle_synchronous_commit(self, value: str | None) -> str:
        if value is not None:
            word = value.strip("'\" ").lower()
            if word not in _ON | _OFF:
                raise BadInput(f"PRAGMA {_SYNCHRONOUS_COMMIT} takes on or off, and not {value!r}")
            self.synchronous_commit = word in _ON
        return str(int(self.synchronous_commit))

    def _ask(self, verb: str, value: str | None, view: Snapshot | None, *, writing: bool) -> str:
        if verb not in _VERBS:
            raise BadInput(f"there is no PRAGMA budwood_{verb}; there are {_ALL}")
        if writing and verb in _MOVING:
            raise BadInput(f"PRAGMA budwood_{verb} can't run inside a write transaction: COMMIT or ROLLBACK first")
        return msgspec.json.encode(self._rows(verb, value, view)).decode()

    def _rows(self, verb: str, value: str | None, view: Snapshot | None) -> list[Row]:
        pages = self._pages
        match verb:
            case "status":
                return [pages.status()]
            case "snapshot":
                return [pages.view_row(view)]
            case "log":
                return pages.log_rows(value)
            case "bind":
                return pages.bind_rows(value)
            case "push":
                return [pages.push_row(value)]
            case "pull":
                return [pages.pull_row()]
            case _:
                return [pages.fetch_row()]

    def _wish(self, word: str) -> None:
        """SQLite passes over sizes that are none, and so does this."""
        size = int(word) if word.isdecimal() else 0
        if not MIN_PAGE_SIZE <= size <= MAX_PAGE_SIZE or size & (size - 1):
            return
        settled = self._pages.page_size
        if settled is None:
            self.page_size = size
        elif settled != size:
            raise BadInput(
                f"volume {self._pages.name!r} has {settled}-byte pages, settled before its first commit; "
                f"that can't be changed to {size}"
            )
