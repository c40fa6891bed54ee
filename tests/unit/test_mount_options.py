"""How mount(8) calls a mount, in our own words."""

from __future__ import annotations

import pytest

from budwood.cli.exit_status import Call
from budwood.cli.mountopts import called_by_mount, helper_call, spelled

PLAIN = ["mount", "--quiet", "--home", "/srv/home", "--", "/mnt/d"]


def chosen(options: str, *, sloppy: bool = False) -> list[str]:
    """The flags alone."""
    call = spelled("/srv/home", "/mnt/d", options, sloppy=sloppy)
    assert [*call[:4], *call[-2:]] == PLAIN
    return call[4:-2]


def test_each_option_has_its_flag() -> None:
    assert chosen("ro,allow_other,nonempty,nosync") == ["--read-only", "--allow-other", "--nonempty", "--no-sync"]
    assert chosen("remote=http://node:7447,token=a=b,lsn=7") == ["--remote=http://node:7447", "--token=a=b", "--lsn=7"]
    assert chosen("at=2030-01-31T12:00:00Z") == ["--at=2030-01-31T12:00:00Z"]
    assert chosen("noexec,nosuid") == ["--fuse-option=noexec", "--fuse-option=nosuid"]


@pytest.mark.parametrize(
    "options",
    [
        "",
        "rw",
        "rw,dev,suid,exec",
        "defaults,noauto,nofail,_netdev,user",
        "users,user=me,relatime,async,auto",
        "x-systemd.automount,x-systemd.requires=network.target,X-mount.mkdir,comment=ours",
    ],
)
def test_what_is_meant_for_others_is_passed_over(options: str) -> None:
    assert chosen(options) == []


@pytest.mark.parametrize("option", ["r0", "readonly", "remote", "lsn", "ro=1", "allow_others", "subtype=x"])
def test_a_mistyped_option_is_refused(option: str) -> None:
    with pytest.raises(Call, match="is no mount option"):
        chosen(f"rw,{option}")
    assert chosen(f"ro,{option}", sloppy=True) == ["--read-only"]


def test_a_call_without_a_verb_is_mount_s() -> None:
    verbs = ["mount", "ls"]
    assert called_by_mount(["/srv/home", "/mnt/d", "-o", "rw"], verbs)
    assert not called_by_mount(["ls", "/mnt/d", "-o", "rw"], verbs)
    assert not called_by_mount(["--home", "x", "-o", "rw"], verbs)
    assert not called_by_mount(["/srv/home", "/mnt/d"], verbs)
    assert not called_by_mount(["ls"], verbs)


def test_the_helper_takes_the_options_wherever_mount_puts_them() -> None:
    assert helper_call(["/srv/home", "/mnt/d"]) == PLAIN
    read_only = [*PLAIN[:4], "--read-only", *PLAIN[4:]]
    assert helper_call(["/srv/home", "/mnt/d", "-o", "ro"]) == read_only
    assert helper_call(["-n", "-v", "-t", "fuse.budwood", "-o", "rw", "/srv/home", "/mnt/d", "-o", "ro"]) == read_only
    assert helper_call(["/srv/home", "/mnt/d", "-s", "-o", "ro,what"]) == read_only


def test_the_helper_does_nothing_when_it_is_only_tried_out() -> None:
    assert helper_call(["/srv/home", "/mnt/d", "-f", "-o", "rw"]) is None


@pytest.mark.parametrize("arguments", [[], ["/srv/home"], ["a", "b", "c"], ["a", "b", "-z"], ["a", "b", "-o"]])
def test_the_helper_called_wrongly_says_so(arguments: list[str]) -> None:
    with pytest.raises(Call, match=r"mount\.fuse\.budwood"):
        helper_call(arguments)
