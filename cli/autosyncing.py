"""Autosync at the command line: a process that pushes and pulls by itself until it is told to end."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from ..volume.errors import BudwoodError
from .common_options import Context, flag, option
from .exit_status import Call
from .metrics import EVERY_SECONDS, text_of_home, write_whole
from .output import say, time_of

if TYPE_CHECKING:
    from ..sync.autosync import Autosync
    from ..sync.autosync_election import Leader
    from ..sync.divergence import OnDiverged
    from ..sync.edge import Edge

_LOOK_SECONDS: Final = 1.0

OnDivergedName: TypeAlias = Annotated[
    str, option("--on-diverged", "WHAT", "Of volumes that diverged: tell, or fork, replay or merge what is unpushed.")
]


def autosync(
    context: Context,
    on_diverged: OnDivergedName = "tell",
    who: Annotated[bool, flag("--who", "Say which process syncs this home, and since when; then end.")] = False,
    volume: Annotated[str | None, option("--volume", "NAME", "Set this volume's sync mode; then end.")] = None,
    mode: Annotated[str | None, option("--mode", "MODE", "With --volume: disabled, push, pull or both.")] = None,
    metrics: Annotated[
        Path | None, option("--metrics", "FILE", "Write figures for Prometheus there, every 15 seconds.")
    ] = None,
) -> None:
    """Push what is committed here and pull what others push, by itself, until SIGTERM or Ctrl-C."""
    if (volume is None) != (mode is None):
        raise Call("--volume NAME and --mode MODE go together")
    if volume is not None and mode is not None:
        with closing(context.edge()) as edge:
            edge.volume_here(volume).set_mode(mode)
        say(f"the sync mode of {volume} is {mode}")
    elif who:
        _say_who(context)
    else:
        _sync(context, policy_named(on_diverged), metrics)


def _say_who(context: Context) -> None:
    from ..sync.autosync_election import leader

    found = leader(context.real_home())
    for line in leader_lines(found) or ["nobody syncs this home: `budwood autosync` does"]:
        say(line)


def leader_lines(found: Leader | None) -> list[str]:
    """Who syncs a home, since when, and the last error. Nothing where nobody does."""
    if found is None:
        return []
    if not found.pid:
        return ["this home is synced by a process that left no word"]
    who = f"mount {found.pid}" if found.is_mount else f"process {found.pid}"
    lines = [f"{who} syncs this home since {time_of(found.since_ms)}"]
    if found.error:
        when = "synced again since" if found.is_over else "not synced since"
        lines.append(f"last error, {time_of(found.error_ms)}, {when}: {found.error}")
    return lines


def leader_object(found: Leader) -> dict[str, Any]:
    names = ("pid", "since_ms", "error", "error_ms", "is_over", "is_mount")
    return {name: getattr(found, name) for name in names}


def policy_named(name: str) -> OnDiverged:
    """As --on-diverged takes it."""
    from ..rows.replaying import replaying
    from ..sync.shared_autosync import POLICIES

    policies: dict[str, OnDiverged] = {**POLICIES, "replay": replaying()}
    if name not in policies:
        raise Call(f"--on-diverged takes {', '.join(policies)}, and not {name!r}")
    return policies[name]


def _sync(context: Context, policy: OnDiverged, metrics: Path | None) -> None:
    from ..sync.connection import hang_up

    with closing(context.edge()) as edge, _until_signal() as ended, edge.autosync(policy, say=_note) as syncing:
        if metrics is not None:
            write_whole(metrics, text_of_home(edge, syncing))
        waits = "; its mount does it now" if context.running() else ""
        say(f"syncing{waits}; SIGTERM or Ctrl-C ends it")
        sys.stdout.flush()
        due = time.monotonic()
        while syncing.is_running and not ended.wait(_LOOK_SECONDS):
            if metrics is not None and time.monotonic() >= due:
                _write(metrics, edge, syncing)
                due = time.monotonic() + EVERY_SECONDS
        # What is under way is given up: nothing of it is lost, and nobody waits for the network now.
        hang_up()


def _write(path: Path, edge: Edge, syncing: Autosync) -> None:
    """A file that can't be written now is no reason to sync no more."""
    try:
        write_whole(path, text_of_home(edge, syncing))
    except BudwoodError as error:
        _note(str(error))


class _Ended:
    """Told by a signal, which comes in the midst of anything that the waiting thread does: so no lock is taken."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)

    def tell(self, *_: object) -> None:
        with suppress(BlockingIOError):
            os.write(self._write, b".")

    def wait(self, seconds: float) -> bool:
        """Whether it was told, by then."""
        return bool(select.select([self._read], [], [], seconds)[0])

    def close(self) -> None:
        os.close(self._read)
        os.close(self._write)


@contextmanager
def _until_signal() -> Generator[_Ended]:
    """Told by SIGTERM; by Ctrl-C unless a shell has it ignored, as in a script's background jobs."""
    ended = _Ended()
    wanted = [signal.SIGTERM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        wanted.append(signal.SIGINT)
    before = {each: signal.signal(each, ended.tell) for each in wanted}
    try:
        yield ended
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        ended.close()


def _note(line: str) -> None:
    print(f"budwood: {' '.join(line.split())}", file=sys.stderr, flush=True)


VERBS: Final[dict[str, Callable[..., None]]] = {"autosync": autosync}
