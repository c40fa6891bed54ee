"""The file systems that the mount is measured against, and the mount: each a directory to work in, for as long as it is
entered. All keep their bytes on the same disk; what a bench starts it ends, and it leaves no mount behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from budwood.fuse.host import mount_client

ROOT = Path(__file__).parents[1]
ENTRY = [sys.executable, "-P", "-c", "from budwood.cli.launch import main; main()"]
END_SECONDS = 60.0


@dataclass(frozen=True)
class FileSystem:
    name: str
    directory: Path
    home: Path | None = None
    """A mount's."""

    def settle(self) -> None:
        """Let the mount finish what it does behind commits, so that whoever comes next has the machine for itself."""
        if self.home is not None:
            mount_client.ask(self.home, "settle", timeout_seconds=END_SECONDS)


def kind_of(directory: Path) -> str:
    """The type of the file system that it lies on, as the kernel names it: ext4, fuse.bindfs."""
    best = ("", "unknown")
    with open("/proc/self/mountinfo") as table:
        for line in table:
            fields = line.split()
            where, kind = fields[4].replace("\\040", " "), fields[fields.index("-") + 1]
            if directory.is_relative_to(where) and len(where) >= len(best[0]):
                best = (where, kind)
    return best[1]


@contextmanager
def disk(folder: Path) -> Generator[FileSystem]:
    directory = folder / "disk"
    directory.mkdir()
    yield FileSystem(kind_of(directory), directory)


@contextmanager
def passthrough(folder: Path) -> Generator[FileSystem]:
    with _served(folder, "passthrough", [sys.executable, "-m", "bench.passthrough", "{files}", "{directory}"]) as place:
        yield place


@contextmanager
def bindfs(folder: Path) -> Generator[FileSystem | None]:
    """Another program that passes calls on, in C; None where it isn't installed."""
    command = shutil.which("bindfs")
    if command is None:
        yield None
        return
    # It says nothing when it serves, but goes into the background only then.
    directory, files = _folders(folder, "bindfs")
    subprocess.run([command, files, directory], check=True, timeout=END_SECONDS)
    try:
        yield FileSystem("bindfs", directory)
    finally:
        _unmount(directory)


@contextmanager
def mount(folder: Path, name: str = "budwood", *, remote: str = "", sync: bool = False) -> Generator[FileSystem]:
    """Budwood's. It pushes and pulls only when told, unless `sync`: nothing else competes with what is measured."""
    where = ["--home", "{files}", *(["--remote", remote] if remote else [])]
    command = [*ENTRY, *where, "mount", "{directory}", "--foreground", *([] if sync else ["--no-sync"])]
    with _served(folder, name, command) as place:
        yield FileSystem(name, place.directory, folder / f"{name}-files")


@contextmanager
def _served(folder: Path, name: str, command: list[str]) -> Generator[FileSystem]:
    """A file system whose process says one line once it serves, and ends on SIGTERM."""
    directory, files = _folders(folder, name)
    given = [part.format(files=files, directory=directory) for part in command]
    process = subprocess.Popen(given, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        if not process.stdout.readline():
            raise SystemExit(f"{name} didn't mount: see above")
        yield FileSystem(name, directory)
    finally:
        process.terminate()
        try:
            process.wait(END_SECONDS)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            if os.path.ismount(directory):
                _unmount(directory)


def _folders(folder: Path, name: str) -> tuple[Path, Path]:
    directory, files = folder / name, folder / f"{name}-files"
    directory.mkdir()
    files.mkdir(exist_ok=True)
    return directory, files


def _unmount(directory: Path) -> None:
    done = subprocess.run(["fusermount3", "-u", directory], capture_output=True, check=False)
    if done.returncode:
        subprocess.run(["fusermount3", "-u", "-z", directory], check=True)
