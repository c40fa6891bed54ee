"""Programs that know nothing of a mount do to its files what they do to any, and find there what they left."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..mounts import Mount, mounted, needs_fuse

pytestmark = needs_fuse


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mount]:
    with mounted(tmp_path_factory.mktemp("programs"), "--no-sync", limit_seconds=600.0) as mount:
        yield mount


def run(directory: Path, *command: str, seconds: float = 60.0) -> str:
    done = subprocess.run(
        command, cwd=directory, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_works_in_a_repository_on_the_mount(shared: Mount) -> None:
    repository = shared.directory / "repository"
    repository.mkdir()
    run(repository, "git", "init", "-q", ".")
    for number in range(40):
        (repository / f"file {number}").write_text(f"{number}\n" * number)
    run(repository, "git", "add", ".")
    who = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.org")
    run(repository, "git", *who, "commit", "-qm", "First")
    run(repository, "git", "gc", "-q")
    run(repository, "git", "fsck", "--strict")
    run(shared.directory, "git", "clone", "-q", "repository", "clone")
    assert run(shared.directory / "clone", "git", "status", "--short") == ""
    assert (shared.directory / "clone" / "file 39").read_text() == "39\n" * 39


def test_a_program_keeps_the_directory_that_it_works_in_while_names_change(shared: Mount) -> None:
    """Whatever the mount has to look up again, a directory that stands is not taken from under a program."""
    directory = shared.directory / "works here"
    directory.mkdir()
    looks = "for each in $(seq 30); do /bin/pwd > /dev/null || exit 1; sleep 0.02; done"
    with subprocess.Popen(["sh", "-c", looks], cwd=directory) as program:
        while program.poll() is None:
            (directory / "temporary").write_text("one")
            (directory / "temporary").unlink()
        assert program.returncode == 0


def test_times_of_directories_survive_a_remount(tmp_path: Path) -> None:
    with mounted(tmp_path, "--no-sync") as mount:
        folder = mount.directory / "folder"
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text("one")
        (folder / "file").write_text("one")
        for each, seconds in ((folder / "inner", 5), (folder, 7)):
            os.utime(each, ns=(0, seconds * 1_000_000_000))
        mount.remount()
        assert [int(each.stat().st_mtime) for each in (folder, folder / "inner")] == [7, 5]
