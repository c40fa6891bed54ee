"""Many small files made one after the other in a mount that syncs, beside one that doesn't: what a program waits for
while all that it makes is pushed underneath, to a node on the same machine; and how long the pushes take on their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

import budwood
from budwood.fuse.host import mount_client

from .filesystems import mount
from .harness import Figure, compare, report, scratch
from .memory import serve

FILES: Final = 400
ROUNDS: Final = 5
BOUND: Final = 3.0
LIMIT_SECONDS: Final = 600.0


def maker(directory: Path) -> Callable[[], None]:
    """Each time as many files, in a folder of their own."""
    folders = count()

    def made() -> None:
        folder = directory / f"folder {next(folders)}"
        folder.mkdir()
        for number in range(FILES):
            (folder / f"file {number}").write_text(f"{number}")

    return made


def unpushed(home: Path) -> int:
    return sum(row["unpushed"] for row in mount_client.ask(home, "status"))


def main() -> None:
    with scratch() as folder:
        node, url = serve(folder / "store", folder / "node")
        try:
            with mount(folder, "synced", remote=url, sync=True) as synced, mount(folder, "alone") as alone:
                assert synced.home is not None
                figure = compare(
                    f"make {FILES} files, while those before are pushed",
                    maker(synced.directory),
                    maker(alone.directory),
                    BOUND,
                    rounds=ROUNDS,
                )
                waiting, start = unpushed(synced.home), time.monotonic()
                while unpushed(synced.home):
                    assert time.monotonic() - start < LIMIT_SECONDS, "the pushes end at some time"
                    time.sleep(0.5)
                rate = waiting / (time.monotonic() - start)
            with budwood.open(home=folder / "other", remote=url) as edge:
                assert len(edge.ls(remote=True)) >= FILES * ROUNDS
        finally:
            node.terminate()
            node.wait()
    report("new files in a mount", [figure, Figure("then pushed by itself", rate, " files a second")])


if __name__ == "__main__":
    main()
