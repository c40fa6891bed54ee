"""Looks at what room is to be given back, by a clock of their own (sync/room_watch.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from budwood.sync.commit_journal import MAX_BYTES as JOURNAL_BYTES
from budwood.sync.room_watch import REST, RoomWatch


@dataclass
class Home:
    """Whose room takes as long to be given back, and is or isn't due after."""

    takes: float = 0.01
    is_due: bool = True
    now: float = 0.0
    spared: list[int] = field(default_factory=list[int])

    def give_back(self, spare_bytes: int) -> bool:
        self.spared.append(spare_bytes)
        self.now += self.takes
        return self.is_due

    def clock(self) -> float:
        return self.now

    def watch(self) -> RoomWatch:
        return RoomWatch(self.give_back, self.clock)


@pytest.mark.parametrize("moved", [True, False])
@pytest.mark.parametrize("takes", [0.0001, 0.01, 0.5])
def test_what_stays_due_takes_a_share_of_the_time(takes: float, *, moved: bool) -> None:
    home = Home(takes)
    watch = home.watch()
    for _ in range(20_000):
        home.now += 0.001
        watch.updated(moved=moved)
    assert not watch.has_room
    assert len(home.spared) > 1
    assert len(home.spared) * takes <= home.now / REST + takes


def test_where_nothing_is_due_some_of_the_updates_look_and_each_that_moves_commits() -> None:
    home = Home(takes=0.0, is_due=False)
    watch = home.watch()
    for _ in range(1024):
        watch.updated(moved=False)
    assert home.spared == [0] * 4
    watch.updated(moved=True)
    assert home.spared[4:] == [JOURNAL_BYTES]


def test_who_has_changed_much_looks_at_once_and_again_when_his_view_is_gone() -> None:
    home = Home(takes=0.5)
    watch = home.watch()
    watch.catch_up()
    watch.look()
    assert len(home.spared) == 2, "at once, whatever came before"
    home.is_due = False
    watch.catch_up(7)
    assert home.spared[2:] == [7]
    assert watch.has_room
    watch.catch_up()
    assert len(home.spared) == 3, "but no more often than that"


def test_a_look_that_was_put_off_is_known_to_be_due() -> None:
    home = Home(takes=0.5, is_due=False)
    watch = home.watch()
    watch.catch_up()
    assert watch.has_room
    watch.catch_up()
    assert not watch.has_room
    home.now += 0.5 * REST
    watch.updated(moved=False)
    assert watch.has_room
    assert len(home.spared) == 2
