"""Systems over volumes in memory: each set of options finds its own, and those that nobody uses don't gather."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import closing
from itertools import count

import apsw
import pytest

from budwood.testing.memory_pages import MemoryVolume
from budwood.vfs.system import Opened, Request
from budwood.vfs.systems import Systems
from budwood.volume.errors import NotFound

from ..waits import LIMIT_SECONDS

_numbers = count(1)


class Tenants:
    """Each has volumes of its own, by name."""

    def __init__(self) -> None:
        self.name = f"budwood-test-{next(_numbers)}"
        self.volumes: dict[tuple[str, str], MemoryVolume] = {}
        self.systems: Systems[str] = Systems(self.name, self._open)

    def connect(self, tenant: str, name: str = "v") -> apsw.Connection:
        return self.systems.connect(tenant, Request(name), fixed=False, timeout_seconds=1)

    def registered(self) -> list[str]:
        gc.collect()
        return [name for name in apsw.vfs_names() if name.startswith(f"{self.name}-")]

    def _open(self, tenant: str, request: Request) -> Opened:
        if request.name == "nowhere":
            raise NotFound("there is no such volume")
        volume = self.volumes.setdefault((tenant, request.name), MemoryVolume(request.name))
        pages = volume.pages()
        return Opened(pages, pages.close)


@pytest.fixture
def tenants() -> Iterator[Tenants]:
    yield Tenants()
    gc.collect()


def put(db: apsw.Connection, value: str) -> None:
    db.execute("CREATE TABLE IF NOT EXISTS t (a)")
    db.execute("INSERT INTO t VALUES (?)", (value,))


def test_those_that_nobody_uses_don_t_gather_and_each_finds_its_own(tenants: Tenants) -> None:
    for number in range(100):
        with closing(tenants.connect(f"t{number}")) as db:
            put(db, f"of t{number}")
    assert not tenants.registered()
    for number in (0, 50, 99):
        with closing(tenants.connect(f"t{number}")) as db:
            assert db.execute("SELECT a FROM t").fetchall() == [(f"of t{number}",)]


def test_one_that_is_in_use_stays_and_attaches_what_is_its_own(tenants: Tenants) -> None:
    with closing(tenants.connect("one", "w")) as db:
        put(db, "of one")
    with closing(tenants.connect("one")) as old:
        put(old, "before")
        for number in range(100):
            tenants.connect(f"t{number}", "w").close()
        assert len(tenants.registered()) == 1
        put(old, "after")
        old.execute("ATTACH 'file:w' AS w")
        assert old.execute("SELECT a FROM w.t").fetchall() == [("of one",)]
        assert old.execute("SELECT a FROM t").fetchall() == [("before",), ("after",)]


def test_what_could_not_be_opened_uses_nothing(tenants: Tenants) -> None:
    for number in range(100):
        with pytest.raises(NotFound):
            tenants.connect(f"t{number}", "nowhere")
    assert not tenants.registered()


def test_a_connection_that_nobody_closed_is_collected_with_its_own(tenants: Tenants) -> None:
    for number in range(100):
        db = tenants.connect(f"t{number}")
        put(db, "never closed")
        circle: list[object] = [db]
        circle.append(circle)
        del db, circle
    assert not tenants.registered()


def test_threads_come_and_go_at_once(tenants: Tenants) -> None:
    wrong: list[BaseException] = []

    def work(own: int) -> None:
        try:
            for number in range(60):
                tenant = f"t{own}-{number % 7}"
                with closing(tenants.connect(tenant)) as db:
                    put(db, tenant)
                    assert {row for (row,) in db.execute("SELECT a FROM t")} == {tenant}
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(own,)) for own in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECONDS)
    assert not wrong
    assert not tenants.registered()
