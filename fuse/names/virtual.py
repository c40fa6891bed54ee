"""Virtual files: what lies in `.budwood/` at a mount's root, for programs that know files and nothing else.

    status    JSON: what the verb of that name answers
    metrics   the same figures as text for Prometheus
    control   takes verbs, one a line, arguments parted as a shell does it: `echo "push shop" > .budwood/control`.
              A verb that fails fails the write. Reading gives the answer of the last one, as JSON: {"ok": …} or
              {"error": …}, as over the socket (`control.py`).

A file's content is settled when it is opened: a reader that takes it in parts never gets a mixture of two answers.
A write is one or more whole lines, which need not end in a line feed. Since a size isn't known before somebody opens,
these files are to be served without the kernel's cache (direct_io), and show the size 0 as those of /proc do.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from ...sync.attributes import Attributes
from ...sync.exposition import prometheus
from ...sync.home_figures import PREFIX as HOME_PREFIX
from ...volume.errors import BadInput, ReadOnly
from ...volume.wire import from_wire
from ..files.inodes import Node
from ..host.control import Answer, respond

FOLDER: Final = ".budwood"

_READABLE: Final = stat.S_IFREG | 0o444
_PRIVATE: Final = stat.S_IFREG | 0o600
PREFIX: Final = "budwood_mount_"


class Virtual:
    """One such file: how it is read, and whether it may be written."""

    def __init__(
        self,
        name: str,
        mode: int,
        read: Callable[[], Awaitable[bytes]],
        write: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.name = name
        self.mode = mode
        self._read = read
        self._write = write

    async def open(self, flags: int) -> bytes:
        """What a handle opened now reads. Raises ReadOnly for flags that want to write what can't be; nothing is
        asked for a handle that only writes.
        """
        access = flags & os.O_ACCMODE
        if access != os.O_RDONLY and self._write is None:
            raise ReadOnly(f"{FOLDER}/{self.name} can't be written")
        return b"" if access == os.O_WRONLY else await self._read()

    async def write(self, data: bytes) -> None:
        """Do the verbs in these lines, in turn, up to the first that fails; raises what it failed with."""
        if self._write is None:
            raise ReadOnly(f"{FOLDER}/{self.name} can't be written")
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError:
            raise BadInput("a verb is text") from None
        for line in filter(str.strip, lines):
            await self._write(line)


class VirtualNode(Node):
    __slots__ = ("virtual",)

    def __init__(self, ino: int, attributes: Attributes, virtual: Virtual) -> None:
        super().__init__(ino, attributes)
        self.virtual = virtual


def virtual_files(answer: Answer) -> dict[str, Virtual]:
    """The files, by name, over the mount's verbs."""
    last: dict[str, Any] = {"ok": None}

    async def status() -> bytes:
        return _json(await answer("status", []))

    async def metrics() -> bytes:
        return metrics_text(await answer("metrics", [])).encode()

    async def control() -> bytes:
        return _json(last)

    async def do(line: str) -> None:
        nonlocal last
        try:
            verb, *arguments = shlex.split(line)
        except ValueError as error:
            raise BadInput(f"{line!r} is no verb with arguments: {error}") from None
        last = await respond(answer, verb, arguments)
        if failure := last.get("error"):
            raise from_wire(failure["code"], failure["message"], failure["details"])

    files = (
        Virtual("status", _READABLE, status),
        Virtual("metrics", _READABLE, metrics),
        Virtual("control", _PRIVATE, control, do),
    )
    return {file.name: file for file in files}


def metrics_text(told: Mapping[str, Any]) -> str:
    """What the verb of that name answers, as text for Prometheus: the home's figures, then the mount's own."""
    own = {name: figure for name, figure in told.items() if name != "home"}
    return prometheus(told.get("home", {}), HOME_PREFIX) + prometheus(own, PREFIX)


def _json(content: Any) -> bytes:
    return json.dumps(content, ensure_ascii=False, indent=1).encode() + b"\n"
