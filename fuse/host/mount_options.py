"""Options: what a mount is asked to be. Standard library alone, for whoever starts one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .mount_client import folder

if TYPE_CHECKING:
    from ...sync.divergence import OnDiverged


@dataclass(frozen=True)
class Options:
    directory: Path
    home: Path
    remote: str | None = None
    token: str | None = None
    read_only: bool = False
    lsn: int | None = None
    at: str | None = None
    allow_other: bool = False
    sync: bool = True
    on_diverged: OnDiverged | None = None
    """None leaves what has diverged as it is."""
    fuse_options: tuple[str, ...] = ()

    @property
    def past(self) -> bool:
        """Whether it shows the volumes as they were."""
        return self.lsn is not None or self.at is not None

    @property
    def folder(self) -> Path:
        """Where its process keeps its state."""
        return folder(self.home, self.directory if self.past else None)

    @property
    def public(self) -> dict[str, Any]:
        """What every process of the user may know of it."""
        names = ("read_only", "lsn", "at", "remote", "sync", "allow_other")
        return {name: getattr(self, name) for name in names}
