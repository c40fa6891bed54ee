"""Attributes: what a file system says of a name besides its content: mode, owner, times.

They travel with the name as a map (`NameRequest.attributes`). Keys that this version doesn't know, and values of a kind
that it doesn't expect, are kept as they came, so that an older edge takes nothing away from a newer one. Nothing of a
name that never had attributes is made up here: a volume made by the command or the VFS has an empty map, and reads as
a plain file of whoever looks (`seen_by`).
"""

from __future__ import annotations

import stat
from typing import Any, Final, Literal

import msgspec

Kind = Literal["file", "directory", "link"]

PLAIN_FILE: Final = stat.S_IFREG | 0o644
NOBODY: Final = -1
_NOTHING: Final = object()
_MOST: Final = 2**63 - 1
NEVER: Final = -_MOST
"""No time: 0 is one, and so are those before it."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Defaults stand for "never set", and are not sent."""

    mode: int = PLAIN_FILE
    """The whole st_mode: type and permissions."""
    uid: int = NOBODY
    gid: int = NOBODY
    atime_ns: int = NEVER
    mtime_ns: int = NEVER
    ctime_ns: int = NEVER
    link: str = ""
    """A symbolic link's text."""
    size: int = 0
    """In bytes: what an edge that doesn't have the volume tells of it. Whoever writes the volume keeps it true."""
    other: dict[str, Any] = {}
    """What came from the remote under keys that are not known here."""

    @property
    def kind(self) -> Kind:
        if stat.S_ISDIR(self.mode):
            return "directory"
        return "link" if stat.S_ISLNK(self.mode) else "file"

    def to_wire(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in _OWN}
        return {**self.other, **{name: value for name, value in own.items() if value != _OWN[name].default}}

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Attributes:
        own = {name: value for name, value in wire.items() if _fits(name, value)}
        other = {name: value for name, value in wire.items() if name not in own}
        return cls(**own, other=other)

    def says_as(self, other: Attributes) -> bool:
        """Whether the two need no change of the remote's name: when a file was last read is not worth one."""
        return self is other or msgspec.structs.replace(self, atime_ns=other.atime_ns) == other

    def merged(self, base: Attributes, theirs: Attributes) -> Attributes:
        """What these and `theirs` have become since `base`. Where both changed the same, these stay."""
        if theirs == base:
            return self
        own, were, others = self.to_wire(), base.to_wire(), theirs.to_wire()
        kept = {key for key in own.keys() | were.keys() if own.get(key, _NOTHING) != were.get(key, _NOTHING)}
        theirs_alone = {key: value for key, value in others.items() if key not in kept}
        return Attributes.from_wire(theirs_alone | {key: own[key] for key in kept if key in own})

    def sized(self, size: int) -> Attributes:
        """With the size that an edge without the volume is told. Nothing is said of a name that has no attributes."""
        return self if self == Attributes() else msgspec.structs.replace(self, size=size)

    def seen_by(self, uid: int, gid: int, made_ns: int) -> Attributes:
        """With what was never set filled in: the owner is whoever looks, the times are those of its making."""
        modified = made_ns if self.mtime_ns == NEVER else self.mtime_ns
        return msgspec.structs.replace(
            self,
            uid=uid if self.uid == NOBODY else self.uid,
            gid=gid if self.gid == NOBODY else self.gid,
            atime_ns=modified if self.atime_ns == NEVER else self.atime_ns,
            mtime_ns=modified,
            ctime_ns=modified if self.ctime_ns == NEVER else self.ctime_ns,
        )


_OWN: Final = {each.name: each for each in msgspec.structs.fields(Attributes) if each.name != "other"}


def _fits(name: str, value: object) -> bool:
    if name not in _OWN or type(value) is not _OWN[name].type:
        return False
    return not isinstance(value, int) or -_MOST <= value <= _MOST
