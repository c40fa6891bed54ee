"""Whose homes, stores and exported files are: for their owner alone, whatever stands there."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.sync.edge import open as open_edge
from budwood.volume.errors import BudwoodError, Unauthorized
from budwood.volume.protocols import Durability

OTHER = 12345
"""A user who is neither root nor whoever runs the tests."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to somebody else")


@pytest.fixture(params=[0o022, 0o000, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    """Of everything below it, and of itself."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in [folder, *folder.rglob("*")]}


def use(home: Path, store: Path) -> None:
    """Everything that makes a file: a commit that spills, a push, a pull, locks."""
    with open_edge(home=home, remote=f"file://{store}") as edge:
        volume = edge.create("v", page_size=4096)
        writer = volume.writer()
        for page in range(1, 3000):
            writer.write(page, page.to_bytes(4) * 1024)
        made = writer.commit(Durability.DURABLE)
        assert made is not None
        made.close()
        volume.push()
        volume.pull()


def test_a_home_and_a_store_are_for_their_owner_alone(tmp_path: Path, umask: int) -> None:
    use(tmp_path / "deep" / "home", tmp_path / "deep" / "store")
    for folder in ("home", "store"):
        found = modes(tmp_path / "deep" / folder)
        assert len(found) > 6
        assert {name: oct(mode) for name, mode in found.items() if mode & 0o077} == {}
    assert stat.S_IMODE((tmp_path / "deep").stat().st_mode) == 0o777 & ~umask


def test_the_parts_of_a_home_that_are_wider_are_tightened_and_the_directory_of_the_users_own_is_not(
    tmp_path: Path,
) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    use(home, tmp_path / "store")
    for path in home.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with open_edge(home=home, remote="") as edge:
        assert edge.volume("v").status()["lsn"] == "1"
    found = modes(home)
    assert found.pop(".") == 0o755
    assert {name: oct(mode) for name, mode in found.items() if mode & 0o077 and "/" not in name} == {}
    assert found["store/data.mdb"] == found["store/lock.mdb"] == 0o600


def test_a_store_in_a_directory_of_a_group_is_the_groups(tmp_path: Path) -> None:
    store = tmp_path / "store"
    store.mkdir()
    store.chmod(0o770)
    before = os.umask(0o002)
    try:
        use(tmp_path / "home", store)
    finally:
        os.umask(before)
    found = modes(store)
    assert {oct(mode) for mode in found.values()} == {"0o770", "0o660"}


def test_an_exported_file_is_as_open_as_the_umask_says_and_the_umask_is_left_alone(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(tmp_path / "home", tmp_path / "store")

    def refuse(_mask: int) -> int:
        raise AssertionError("the umask is the whole process's")

    with open_edge(home=tmp_path / "home", remote="") as edge:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", refuse)
            edge.volume("v").export(tmp_path / "file")
        assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~umask
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "home", "store"]


PARTS = ("store", "locks", "tmp", "cache", "mount", "home.json", "store/data.mdb", "store/lock.mdb")


@needs_root
@pytest.mark.parametrize("part", PARTS)
def test_a_link_in_a_home_that_somebody_else_made_is_not_followed(tmp_path: Path, part: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    use(elsewhere, tmp_path / "store")
    before = modes(elsewhere)
    (home / part).parent.mkdir(parents=True)
    (home / part).symlink_to(elsewhere / part)
    for path in (home, *home.rglob("*")):
        os.chown(path, OTHER, OTHER, follow_symlinks=False)
    with pytest.raises(Unauthorized, match=f"{home}/{part} is a link that somebody else made"):
        open_edge(home=home, remote="")
    with pytest.raises(Unauthorized, match="is a link"):
        budwood.connect("v", home=home, remote="")
    assert modes(elsewhere) == before


@needs_root
def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    home, target = tmp_path / "home", tmp_path / "target"
    with open_edge(home=home, remote="") as edge:
        volume = edge.create("v")
        lock = home / "locks" / str(volume.id)
        lock.unlink()
        lock.symlink_to(target)
        with pytest.raises(BudwoodError, match="lock"):
            volume.writer()
    assert not target.exists()


def test_a_link_in_ones_own_home_is_followed(tmp_path: Path) -> None:
    """A store on a larger disk."""
    (tmp_path / "large").mkdir(mode=0o700)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "store").symlink_to(tmp_path / "large")
    with closing(budwood.connect("v", home=tmp_path / "home", remote="")) as db:
        db.execute("create table t(a)")
    assert (tmp_path / "large" / "data.mdb").exists()


@needs_root
def test_a_part_of_ones_own_home_that_belongs_to_somebody_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home" / "store").mkdir(parents=True)
    os.chown(tmp_path / "home" / "store", OTHER, OTHER)
    with pytest.raises(Unauthorized, match="belongs to another user"):
        open_edge(home=tmp_path / "home", remote="")
