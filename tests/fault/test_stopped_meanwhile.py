"""A process that is stopped at each point of what it does to a home, while another one does something else to it: each
is done or refused in words, and in the end the home is sound, holds what was told, and a new home reads what it pushed.

By default each twelfth pair; `PAIRS=1` takes each of them. Where the one holds what the other waits for, it goes on.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing, suppress
from functools import partial
from itertools import product
from pathlib import Path

import apsw
import pytest

import budwood
from budwood.sync.verify import verify
from budwood.volume.errors import BudwoodError, Corrupt, Diverged

from ..waits import wait_until
from .forked_steps import Rows, Town, ended
from .test_each_refusal import Place, commit, compact, fork, make_origin, push

EACH = int(os.environ.get("PAIRS", "12"))
HELD_SECONDS = 0.3
"""So long one may wait for the other before that goes on; it is tried in any case."""


def keep(place: Place) -> None:
    place.edge.volume("shared").reset(keep_as="kept")


def rename(place: Place) -> None:
    place.edge.mv("alone", "renamed")


FIRST = {each.__name__: each for each in (commit, push, keep, fork, compact)}
STEPS = FIRST | {"rename": rename}
TOLD: Rows = {"shared": {0, 2}, "ours": {0, 1}, "alone": {0}, "large": {0}}


def attempted(town: Town, step: str) -> None:
    """It may be refused, since the other one has done it, or is at it."""
    place = Place(town.folder / "home", town.folder / "store", TOLD)
    try:
        STEPS[step](place)
    except (Corrupt, apsw.CorruptError):
        raise
    except (BudwoodError, apsw.Error):
        pass
    place.close()


def sound(town: Town) -> None:
    place = Place(town.folder / "home", town.folder / "store", {})
    assert verify(place.home).findings == ()
    rows = {name: place.rows(name) for name in place.names}
    assert set().union(*rows.values()) >= {0, 1, 2}, rows
    with closing(budwood.open(home=place.home, remote=place.remote)) as edge:
        for name in rows:
            # A rename of what the other one was pushing isn't known there.
            known = edge.volume(name).status()["remote_name"]
            with suppress(Diverged):
                edge.volume(name).push()
                assert place.rows(known or name, town.folder / "fresh") == place.rows(name), name
    place.close()


def has_ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


@pytest.mark.parametrize("first", FIRST)
def test_what_one_does_while_another_is_in_the_middle(tmp_path: Path, first: str) -> None:
    town = Town(tmp_path)
    assert town.run(lambda: make_origin(town.folder)) == 0, town.said
    origin = town.kept()
    assert town.run(partial(attempted, town, first), traced=True) == 0, town.said
    pairs = list(product(town.reached(), STEPS))
    assert pairs
    for point, second in pairs[::EACH]:
        town.back(origin)
        one = town.stop(partial(attempted, town, first), point)
        assert one is not None, point
        other = town.start(partial(attempted, town, second))
        with suppress(AssertionError):
            wait_until(partial(has_ended, other), HELD_SECONDS)
        os.kill(one, signal.SIGCONT)
        assert (ended(one), ended(other)) == (0, 0), f"{point} while {second}: {town.said}"
        assert town.run(partial(sound, town)) == 0, f"{point} while {second}: {town.said}"
