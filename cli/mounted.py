"""Mounted: what a command does differently when a mount runs on its home.

- Every command sees what programs have committed through the mount: it settles first (`Context.settle`).
- push, pull, fetch and reset are the mount's own work then (`running`): it swaps the files that programs have open, has
  the remote and the token that it was started with, and doesn't collide with its own pushes. A command that names
  another remote than the mount's does the work itself.
- Whatever else changes a volume that a program has open for writing meets Busy, as with any other writer.

Mounts at an LSN or a time follow nothing, and are left out of this. Without a mount all of this costs one look at a
file name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

_SETTLE_SECONDS: Final = 60.0


class Mounted:
    """The mount of a home, as commands ask it."""

    def __init__(self, home: Path, remote: str) -> None:
        self.home = home
        self.remote = remote
        """The remote that it was started with; "" for none."""

    def ask(self, verb: str, *arguments: str, timeout_seconds: float | None = None) -> Any:
        """Raises what the verb failed with."""
        from ..fuse.host.mount_client import ask

        return ask(self.home, verb, *arguments, timeout_seconds=timeout_seconds)


def settle(home: Path) -> Mounted | None:
    """Wait until what programs committed through the home's mount is in the local store. None if there is no mount."""
    mount = _mount_of(home)
    if mount is not None:
        mount.ask("settle", timeout_seconds=_SETTLE_SECONDS)
    return mount


def running(home: Path, remote: str | None) -> Mounted | None:
    """The mount that does the syncing of this home with that remote; None if the command does it."""
    mount = _mount_of(home)
    if mount is None or not remote or remote.rstrip("/") == mount.remote.rstrip("/"):
        return mount
    return None


def _mount_of(home: Path) -> Mounted | None:
    if not os.path.exists(f"{home}/mount/control"):
        return None
    from ..fuse.host.mount_client import serving, stated

    if serving(home) is None:
        return None
    return Mounted(home, stated(home).get("options", {}).get("remote") or "")
