"""`python -m tests.stored young|grown|relocated`: see __init__.py."""

from __future__ import annotations

import shutil
import sys
import tarfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import msgspec

from budwood.server.store.directory_store import FileStore
from budwood.server.store.protocol import Store

from ..estate import Estate, build_home, build_store
from ..grown import Grown, grow_old
from ..relocated import relocate
from ..second_reader import Store as SecondReader
from ..second_reader import directory
from . import FOLDER, GROWN, RELOCATED, YOUNG, Held, HeldGrown, HeldVolume, digest_of


async def _build() -> Estate:
    store = await FileStore.open(str(FOLDER / "store"))
    try:
        return await build_store(store)
    finally:
        await store.aclose()


async def _build_grown(make: Callable[[Store], Awaitable[Grown]]) -> Grown:
    store = await FileStore.open(str(FOLDER / "store"))
    try:
        return await make(store)
    finally:
        await store.aclose()


def young() -> None:
    estate = anyio.run(_build)
    seen = build_home(FOLDER / "home", f"file://{FOLDER}/store", estate)
    held = Held(
        volumes={str(vid): [digest_of(pages) for pages in history] for vid, history in estate.history.items()},
        names={name: str(vid) for name, vid in estate.names.items()},
        home={name: digest_of(pages) for name, pages in seen.items()},
    )
    # What is of this machine's moment alone: they are made anew.
    (FOLDER / "home" / "store" / "lock.mdb").unlink()
    (FOLDER / "home" / "store" / "sound").unlink()
    shutil.rmtree(FOLDER / "home" / "locks")
    _write(YOUNG, ["store", "home"], held)


def grown() -> None:
    _write_grown(GROWN, grow_old)


def relocated() -> None:
    _write_grown(RELOCATED, relocate)


def _write_grown(pair: Path, make: Callable[[Store], Awaitable[Grown]]) -> None:
    """Which LSNs can be read is what the second reader says; what they read as is what was written."""
    made = anyio.run(_build_grown, make)
    store = SecondReader(directory(FOLDER / "store"))
    store.check()
    volumes: dict[str, HeldVolume] = {}
    for name, vid in made.volumes.items():
        volume, history = store.volume(vid.raw), made.estate.history[vid]
        volumes[str(vid)] = HeldVolume(
            name=name,
            log=volume.log,
            since=volume.since,
            head=len(history) - 1,
            policy=volume.policy,
            labels={label: lsn for label, (whose, lsn) in made.labels.items() if whose == name},
            pages={str(lsn): digest_of(history[lsn]) for lsn in sorted(store.readable(vid.raw))},
        )
    names = {name: str(vid) for name, vid in made.estate.names.items()}
    policy = store.default_policy() or ()
    _write(pair, ["store"], HeldGrown(now_ms=made.now_ms, volumes=volumes, names=names, policy=policy))


def _write(pair: Path, parts: list[str], held: Held | HeldGrown) -> None:
    with tarfile.open(pair.with_suffix(".tar.xz"), "w:xz", preset=9) as archive:
        for name in parts:
            archive.add(FOLDER / name, name, filter=_nobodys)
    pair.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(held)) + b"\n")


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def main() -> None:
    pairs = {"young": young, "grown": grown, "relocated": relocated}
    if len(sys.argv) != 2 or sys.argv[1] not in pairs:
        sys.exit("usage: python -m tests.stored young|grown|relocated")
    FOLDER.mkdir()
    try:
        pairs[sys.argv[1]]()
    finally:
        shutil.rmtree(FOLDER)


if __name__ == "__main__":
    main()
