"""A mount of many names: it starts, and lists them, without asking anything of anybody."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.mounts import Mount, mounted, needs_fuse

import budwood
from budwood.sync.environment import Environment
from budwood.sync.local_volume import Local
from budwood.sync.name_table import NameTable
from budwood.sync.tables import VolumeRecord
from budwood.sync.volume_lifecycle import first_head
from budwood.volume.ids import VolumeId

if TYPE_CHECKING:
    from budwood.sync.tables import Txn

NAMES = 10_000
FOLDERS = 100

pytestmark = [needs_fuse, pytest.mark.slow]


@contextmanager
def listener() -> Generator[tuple[str, list[object]]]:
    """An address, and who called there."""
    calls: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def accept() -> None:
            while True:
                connection, caller = server.accept()
                connection.close()
                if ended.is_set():
                    return
                calls.append(caller)

        thread = threading.Thread(target=accept)
        thread.start()
        address = server.getsockname()
        try:
            yield f"http://{address[0]}:{address[1]}", calls
        finally:
            ended.set()
            socket.create_connection(address).close()
            thread.join()


def fill(home: Path, remote: str) -> dict[str, int]:
    """Volumes of the remote as clones leave them, without a page; their lengths in bytes, by name."""
    lengths = {f"{number % FOLDERS:02}/file-{number:05}.db": (number + 1) * 4096 for number in range(NAMES)}

    def write(environment: Environment, txn: Txn) -> None:
        for name, length in lengths.items():
            vid = VolumeId.new()
            record = VolumeRecord(vid=vid.raw, name=name, remote=remote, store="there", bound=name, created=True)
            NameTable(environment, txn).add(record)
            Local(environment, vid, name).put_head(txn, first_head(length, 7, 4096))

    with budwood.open(home=home) as edge:
        edge.environment.update(lambda txn: write(edge.environment, txn))
    return lengths


def listed(mount: Mount) -> dict[str, int]:
    """The files with their lengths, as `ls -lR` asks for them."""
    return {
        str(Path(folder, name).relative_to(mount.directory)): Path(folder, name).stat().st_size
        for folder, _, names in os.walk(mount.directory)
        for name in names
    }


def test_ten_thousand_names_are_listed_by_their_folders_and_nobody_is_asked_for_a_page(tmp_path: Path) -> None:
    """Names come with their lengths: the kernel asks once or twice a folder, and for no file."""
    with listener() as (remote, calls):
        lengths = fill(tmp_path / "home", remote)
        with mounted(tmp_path, "--no-sync") as mount:
            assert listed(mount) == lengths
            asked = mount.ask("metrics")["requests_total"]["request"]
        assert calls == []
    assert sum(asked.values()) < 10 * FOLDERS, asked
