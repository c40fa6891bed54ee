"""`python -m tests.stored`: see __init__.py."""

from __future__ import annotations

import shutil
import tarfile

import anyio
import msgspec

from budwood.server.store.directory_store import FileStore

from ..estate import Estate, build_home, build_store
from . import ARCHIVE, FOLDER, HELD, Held, digest_of


async def build() -> Estate:
    store = await FileStore.open(str(FOLDER / "store"))
    try:
        return await build_store(store)
    finally:
        await store.aclose()


def main() -> None:
    FOLDER.mkdir()
    try:
        estate = anyio.run(build)
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
        with tarfile.open(ARCHIVE, "w:xz", preset=9) as archive:
            for name in ("store", "home"):
                archive.add(FOLDER / name, name, filter=_nobodys)
        HELD.write_bytes(msgspec.json.format(msgspec.json.encode(held)) + b"\n")
    finally:
        shutil.rmtree(FOLDER)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    main()
