"""Checks: what must be so before a mount is tried, each refusal in a line that says what to do.

libfuse's own words for these are a number at best, and some (a home that would disappear beneath its own mount) it lets
pass. Standard library alone, so that a machine without pyfuse3 hears of that and not of a missing module.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ...volume.errors import AlreadyExists, BadInput, Busy, NotFound, UsageError
from ...volume.ids import check_utf8
from .mount_client import serving, stated
from .mountinfo import find, table

DEVICE: Final = "/dev/fuse"
_FUSE_CONF: Final = "/etc/fuse.conf"
LIBRARIES: Final = ("pyfuse3", "trio")


def check_machine(*, allow_other: bool = False) -> None:
    """Raises UsageError where this machine, as it stands, can't mount anything."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"a mount needs {' and '.join(missing)}: pip install 'budwood[fuse]', which builds pyfuse3; on Debian that"
            " wants apt-get install fuse3 libfuse3-dev pkg-config gcc python3-dev"
        )
    if not os.path.exists(DEVICE):
        raise UsageError(
            f"this machine has no {DEVICE}: modprobe fuse; a container gets it by --device {DEVICE} --cap-add SYS_ADMIN"
        )
    if not os.access(DEVICE, os.R_OK | os.W_OK):
        raise UsageError(f"{DEVICE} may not be opened by this user: root allows it with chmod 666 {DEVICE}")
    if shutil.which("fusermount3") is None:
        raise UsageError("a mount needs the program fusermount3: on Debian apt-get install fuse3")
    if allow_other and os.geteuid() != 0 and not _others_allowed():
        raise UsageError(f"--allow-other needs the line user_allow_other in {_FUSE_CONF}, which root writes")


def _others_allowed() -> bool:
    try:
        lines = Path(_FUSE_CONF).read_text().splitlines()
    except OSError:
        return False
    return any(line.strip() == "user_allow_other" for line in lines)


def check_directory(directory: Path, home: Path, *, nonempty: bool = False) -> None:
    """Raises an error in words unless `directory` can carry a mount of `home`; both absolute and without links."""
    mount = find(directory)
    # Before anything looks at the directory: a dead mount fails whoever does.
    if mount is not None and mount.ours:
        raise AlreadyExists(f"{directory} is a mount of {mount.source} already: budwood umount {directory} first")
    if mount is not None:
        raise AlreadyExists(f"{directory} is a mount already ({mount.kind}): take another directory")
    check_utf8(str(directory), f"the path of {directory}")
    if not directory.exists():
        raise NotFound(f"there is no directory {directory}: make it first")
    if not directory.is_dir():
        raise BadInput(f"{directory} is a file: a mount needs a directory")
    if directory == home or home in directory.parents:
        raise BadInput(f"{directory} lies in the home {home}, which the mount itself works in: take another directory")
    if directory in home.parents:
        raise BadInput(f"a mount on {directory} would hide the home {home}, which lies in it: take another directory")
    if not nonempty and not _is_empty(directory):
        raise BadInput(
            f"{directory} is not empty, and a mount would hide what it holds: --nonempty mounts all the same"
        )


def _is_empty(directory: Path) -> bool:
    with os.scandir(directory) as entries:
        return next(entries, None) is None


def check_home(home: Path) -> None:
    """Raises Busy if a mount serves the home already; those of its past are beside it. Whoever passes must still claim
    it (`mount_lock.py`).
    """
    if is_mounted(home):
        raise Busy(already(home))


def is_mounted(home: Path) -> bool:
    """Whether a living process serves the home at a directory."""
    return any(mount.ours and mount.source == str(home) for mount in table()) and serving(home) is not None


def already(home: Path) -> str:
    where = stated(home).get("dir")
    return f"the home {home} is mounted {f'at {where} ' if where else ''}already: one mount serves all of a home"
