"""The kernel's table of mounts is read as it is written, and what can't carry a mount is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from budwood.fuse.host import checks
from budwood.fuse.host import mount_lock as claiming
from budwood.fuse.host.mount_client import LOCK, STATE, folder, stated
from budwood.fuse.host.mount_lock import hold_home
from budwood.fuse.host.mountinfo import TYPE, Mountpoint, find, parse, real, source_option, table
from budwood.volume.errors import AlreadyExists, BadInput, Busy, NotFound, UsageError

TABLE = rb"""22 28 0:21 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
90 28 0:50 / /mnt/a\040b\134c rw,nosuid,nodev,relatime shared:50 master:1 - fuse.budwood /home/me/has\040blank rw
91 28 0:51 / /mnt/old ro,nosuid,nodev,relatime - fuse.budwood /srv/home ro,user_id=0,allow_other
92 91 0:52 / /mnt/old rw - tmpfs none rw
"""


def test_a_table_is_read_with_its_escapes() -> None:
    proc, ours, old, over = parse(TABLE)
    assert (proc.kind, proc.ours) == ("proc", False)
    assert (ours.directory, ours.source, ours.ours) == (Path("/mnt/a b\\c"), "/home/me/has blank", True)
    assert "ro" not in ours.options
    assert (ours.device, old.device) == (50, 51)
    assert {"ro", "allow_other"} <= old.options
    assert over.kind == "tmpfs"


def test_the_last_mount_on_a_directory_is_the_one_that_is_seen() -> None:
    found = find("/mnt/old", parse(TABLE))
    assert found is not None
    assert found.kind == "tmpfs"
    assert find("/mnt/nothing", parse(TABLE)) is None
    assert find("/mnt/x/../a b\\c/", parse(TABLE)) is not None


def test_a_link_leads_to_the_mount(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "mounted")
    mount = Mountpoint(tmp_path / "mounted", "ext4", "x", frozenset(), 50)
    assert find(tmp_path / "link", [mount]) == mount


def test_a_path_is_freed_of_links_without_a_look_at_our_mounts(tmp_path: Path) -> None:
    (tmp_path / "mounted").symlink_to("/nowhere")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "up").symlink_to("../../link")
    (tmp_path / "link").symlink_to(tmp_path / "mounted" / "within")
    mount = Mountpoint(tmp_path / "mounted", TYPE, "x", frozenset(), 50)
    # Were it looked at, what stands there would lead elsewhere.
    assert real(tmp_path / "deep/er/up/file", [mount]) == tmp_path / "mounted/within/file"
    assert find(tmp_path / "deep/er/up/..", [mount]) is None
    assert real(tmp_path / "deep/er/up/file", []) == Path("/nowhere/within/file")
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(OSError, match="Too many levels"):
        real(tmp_path / "round", [])


def test_this_machine_s_table_is_read() -> None:
    assert any(mount.directory == Path("/proc") and mount.kind == "proc" for mount in table())


def test_a_source_with_a_comma_is_escaped_for_libfuse() -> None:
    assert source_option(Path("/a,b\\c")) == "fsname=/a\\,b\\\\c"


def test_a_directory_that_can_t_carry_a_mount_is_refused_in_words(tmp_path: Path) -> None:
    home = tmp_path / "in" / "home"
    (home / "inside").mkdir(parents=True)
    (tmp_path / "file").touch()
    with pytest.raises(NotFound, match="make it first"):
        checks.check_directory(tmp_path / "nothing", home)
    with pytest.raises(BadInput, match="is a file"):
        checks.check_directory(tmp_path / "file", home)
    for within in (home, home / "inside"):
        with pytest.raises(BadInput, match="lies in the home"):
            checks.check_directory(within, home)
    with pytest.raises(BadInput, match="would hide the home"):
        checks.check_directory(tmp_path / "in", home, nonempty=True)
    with pytest.raises(AlreadyExists, match="is a mount already"):
        checks.check_directory(Path("/proc"), home)


def test_a_directory_that_holds_something_is_taken_only_when_told(tmp_path: Path) -> None:
    full = tmp_path / "full"
    (full / "something").mkdir(parents=True)
    with pytest.raises(BadInput, match="--nonempty"):
        checks.check_directory(full, tmp_path / "home")
    checks.check_directory(full, tmp_path / "home", nonempty=True)
    checks.check_directory(full / "something", tmp_path / "home")


@pytest.mark.parametrize(
    ("what", "value", "told"),
    [
        ("DEVICE", "/nowhere/fuse", "this machine has no /nowhere/fuse"),
        ("LIBRARIES", ("pyfuse3_that_nobody_has",), r"pip install 'budwood\[fuse\]'"),
    ],
)
def test_a_machine_that_lacks_something_is_told_what_to_install(
    what: str, value: object, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LIBRARIES", ("trio",))
    monkeypatch.setattr(checks, "DEVICE", "/dev/null")
    monkeypatch.setattr(checks, what, value)
    with pytest.raises(UsageError, match=told):
        checks.check_machine()


def test_a_machine_without_fusermount3_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checks, "LIBRARIES", ("trio",))
    monkeypatch.setattr(checks, "DEVICE", "/dev/null")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install fuse3"):
        checks.check_machine()


def test_others_are_let_in_only_where_root_allows_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "fusermount3"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(checks, "LIBRARIES", ("trio",))
    monkeypatch.setattr(checks, "DEVICE", "/dev/null")
    monkeypatch.setattr(checks, "_FUSE_CONF", str(tmp_path / "fuse.conf"))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    checks.check_machine()
    for content in ("", "# user_allow_other\n"):
        (tmp_path / "fuse.conf").write_text(content)
        with pytest.raises(UsageError, match="user_allow_other"):
            checks.check_machine(allow_other=True)
    (tmp_path / "fuse.conf").write_text("mount_max = 5\nuser_allow_other\n")
    checks.check_machine(allow_other=True)


def test_a_home_is_claimed_by_one_and_says_where_it_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claiming, "is_mounted", Path.exists)
    with hold_home(tmp_path, Path("/mnt/a"), {"lsn": 7}):
        state = stated(tmp_path)
        assert (state["dir"], state["options"], set(state)) == (
            "/mnt/a",
            {"lsn": 7},
            {"pid", "dir", "options", "socket", "started"},
        )
        with pytest.raises(Busy, match="is mounted at /mnt/a already"), hold_home(tmp_path, Path("/mnt/b"), {}):
            pass
        assert stated(tmp_path) == state, "the one that was refused leaves the other's word alone"
    assert sorted(path.name for path in folder(tmp_path).iterdir()) == [LOCK]
    (folder(tmp_path) / STATE).write_text('{"dir": "/mnt/killed"}')
    with hold_home(tmp_path, Path("/mnt/b"), {}):
        assert stated(tmp_path)["dir"] == "/mnt/b"


def test_whoever_mounts_next_waits_for_a_process_that_has_lost_its_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ending = hold_home(tmp_path, Path("/mnt/a"), {})
    ending.__enter__()
    asked: list[Path] = []

    def is_mounted(home: Path) -> bool:
        asked.append(home)
        if len(asked) == 2:
            ending.__exit__(None, None, None)
        return False

    monkeypatch.setattr(claiming, "is_mounted", is_mounted)
    with hold_home(tmp_path, Path("/mnt/b"), {}):
        assert stated(tmp_path)["dir"] == "/mnt/b"
    assert asked == [tmp_path] * 2
