"""Mount options: how mount(8) and /etc/fstab call a mount, in the words of `budwood mount`.

    mount -t fuse.budwood HOME DIR -o ro,remote=http://node:7447

ends in one of two programs: `/sbin/mount.fuse.budwood HOME DIR [-sfnv] [-N …] [-t …] [-o OPTIONS]`, if someone linked
our script of that name there; else `mount.fuse`, which runs `budwood HOME DIR -o OPTIONS`.

Options: ro, rw, allow_other, nonempty, nosync, remote=URL, token=TEXT, lsn=N, at=TIME,
cache_bytes=N. nodev, nosuid, noexec, noatime
go to the kernel. What is meant for mount(8), systemd or other kinds of file systems says nothing to us and is passed
over. Anything else is refused, as a mistyped `ro` would otherwise be a writable mount; unless mount(8) says to be
sloppy (-s).
"""

from __future__ import annotations

import getopt
from collections.abc import Container, Sequence
from typing import Final

from .exit_status import Call

_FLAGS: Final = {"ro": "--read-only", "allow_other": "--allow-other", "nonempty": "--nonempty", "nosync": "--no-sync"}
_VALUES: Final = {
    "remote": "--remote",
    "token": "--token",
    "lsn": "--lsn",
    "at": "--at",
    "cache_bytes": "--cache-bytes",
}
_KERNEL: Final = frozenset({"nodev", "nosuid", "noexec", "noatime"})
# fmt: off
_PASSED_OVER: Final = frozenset((
    "rw", "defaults", "auto", "noauto", "nofail", "user", "users", "nouser", "owner", "group", "_netdev", "dev", "suid",
    "exec", "async", "sync", "atime", "relatime", "norelatime", "strictatime", "diratime", "nodiratime",
    "lazytime", "nolazytime", "loud", "silent", "comment", "mand", "nomand", "iversion", "noiversion",
))
# fmt: on
_PREFIXES_PASSED_OVER: Final = ("x-", "X-")


def called_by_mount(arguments: Sequence[str], verbs: Container[str]) -> bool:
    """Whether a command line is `HOME DIR -o OPTIONS`. No verb stands first in it, and no verb has an option -o."""
    return len(arguments) == 4 and arguments[2] == "-o" and arguments[0] not in verbs and arguments[0][:1] != "-"


def helper_call(arguments: Sequence[str]) -> list[str] | None:
    """The command line of mount.fuse.budwood, as one of ours; None if it is only to be tried out (-f)."""
    try:
        options, operands = getopt.gnu_getopt(list(arguments), "sfnvN:o:t:")
    except getopt.GetoptError as error:
        raise Call(f"mount.fuse.budwood: {error}") from None
    if len(operands) != 2:
        raise Call("mount.fuse.budwood is called by mount(8): mount -t fuse.budwood HOME DIR [-o OPTIONS]")
    given = dict(options)
    if "-f" in given:
        return None
    home, directory = operands
    chosen = ",".join(text for name, text in options if name == "-o")
    return spelled(home, directory, chosen, sloppy="-s" in given)


def spelled(home: str, directory: str, options: str, *, sloppy: bool = False) -> list[str]:
    """The same call as arguments of ours. Raises Call for an option that nobody knows."""
    call = ["mount", "--quiet", "--home", home]
    for option in filter(None, options.split(",")):
        name, equals, value = option.partition("=")
        if option in _FLAGS:
            call.append(_FLAGS[option])
        elif name in _VALUES and equals:
            call.append(f"{_VALUES[name]}={value}")
        elif option in _KERNEL:
            call.append(f"--fuse-option={option}")
        elif not (sloppy or name in _PASSED_OVER or name.startswith(_PREFIXES_PASSED_OVER)):
            known = ", ".join([*_FLAGS, *(f"{each}=…" for each in _VALUES)])
            raise Call(f"{option!r} is no mount option: take {known}")
    return [*call, "--", directory]
