"""Import check: whether a SQLite file that is to be imported is one that SQLite can read.

A page that has rotted would be kept, sent and read by everyone, and be found when it is too late to ask where it came
from. SQLite's own `quick_check` walks every B-tree and the free list: once through the file, with a small cache. What
it finds wrong with pages is told as Corrupt. What it finds wrong with rows (a NULL where the schema forbids it) is as
its owner left it, and no reason to refuse the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import quote

from ..volume.errors import Corrupt

_CACHE_KIB: Final = 8 * 1024
_STEPS: Final = 100_000
_PAGES: Final = "*** in database"
"""How quick_check begins what it says of pages."""


def quick_check(path: Path) -> str:
    """What hindered the check, or was found that is no damage; "" if all is well. Raises Corrupt.

    Nobody may be writing to the file, and nothing may be left in a journal beside it.
    """
    # Only an import needs it.
    import apsw

    # Not locked and not journalled: it leaves nothing beside the file, and reads one in WAL mode as it stands.
    uri = f"file:{quote(str(path.absolute()))}?immutable=1"
    db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI, vfs="unix")
    try:
        # An interrupt is heard between steps.
        db.set_progress_handler(lambda: False, _STEPS)
        db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        db.execute("PRAGMA ignore_check_constraints = ON")
        found = [str(row[0]) for row in db.execute("PRAGMA quick_check(10)")]
    except (apsw.CorruptError, apsw.NotADBError) as error:
        raise _damaged(path, str(error)) from None
    except apsw.SQLError as error:
        # A collation or a module that the application would have brought along.
        return f"{path} could not be checked: {error}"
    finally:
        db.close()
    damage = next((each for each in found if each.startswith(_PAGES) or "malformed" in each), None)
    if damage is not None:
        raise _damaged(path, " ".join(line for line in damage.splitlines() if not line.startswith("***")))
    return "" if found == ["ok"] else f"SQLite says of {path}: {'; '.join(found[:3])}"


def _damaged(path: Path, what: str) -> Corrupt:
    short = what if len(what) <= 200 else f"{what[:200]}…"
    return Corrupt(
        str(path),
        f"SQLite's quick_check says {short!r}: recover it with `sqlite3 {path} .recover`, or import it as it is with "
        "--no-check",
    )
