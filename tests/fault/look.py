"""What a fresh process finds of a volume: run as `look.py HOME REMOTE NAME SECOND MARK`; prints one line of JSON.

It opens the home, reads, checks, writes one row at once (a busy timeout of 0: no lock may be left), pushes, and looks
at the volume from the second home, which is new. Where the push says that the volume has diverged it takes the way
out that loses nothing, `reset(keep_as=…)`, writes its row again and pushes.
"""

from __future__ import annotations

import json
import sys
from contextlib import closing

import apsw

import budwood
from budwood.volume.errors import Diverged


def main(home: str, remote: str, name: str, second: str, mark: str) -> None:
    with budwood.open(home=home, remote=remote) as edge:
        found: dict[str, object] = {"names": [row["name"] for row in edge.ls()], "kept": []}
        volume = edge.volume(name)
        with closing(budwood.connect(name, home=home, remote=remote, mode="rw", timeout=0)) as db:
            found["rows"] = rows(db)
            found["integrity"] = db.pragma("integrity_check")
            found["unpushed"] = volume.status()["unpushed"]
            db.execute("insert into ledger values(?)", (mark,))
        try:
            found["pushed"] = volume.push()
        except Diverged:
            found["pushed"] = "diverged"
            volume.reset(keep_as=f"{name}-kept")
            with closing(budwood.connect(f"{name}-kept", home=home, remote=remote, mode="rw")) as db:
                found["kept"] = rows(db)
            with closing(budwood.connect(name, home=home, remote=remote, mode="rw", timeout=0)) as db:
                db.execute("insert into ledger values(?)", (mark,))
            volume.push()
        with closing(budwood.connect(name, home=home, remote=remote, mode="rw")) as db:
            found["local"] = rows(db)
        head, called = int(volume.status()["lsn"]), volume.status()["remote_name"]
    with closing(budwood.connect(called, home=second, remote=remote, mode="rw")) as db:
        found["remote"] = rows(db)
        found["history"] = [past(called, second, remote, lsn) for lsn in range(1, head + 1)]
    print(json.dumps(found), flush=True)


def past(name: str, home: str, remote: str, lsn: int) -> list[str]:
    with closing(budwood.connect(name, home=home, remote=remote, lsn=lsn)) as db:
        return rows(db)


def rows(db: apsw.Connection) -> list[str]:
    return [str(row[0]) for row in db.execute("select entry from ledger order by rowid")]


if __name__ == "__main__":
    main(*sys.argv[1:])
