"""Machines: network namespaces that are connected through a hub, and can be cut off.

Each is held by a process that sleeps, so that all of it goes when that process does: nothing has a name outside. It
takes root, and iproute2.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Final

from ..waits import LIMIT_SECONDS
from .children import Child, Children

HUB: Final = "10.99.0.1"
_BRIDGE: Final = "hub"


def why_not() -> str:
    """Why no machines can be made here; empty if they can."""
    probe = "ip link add va type veth peer name vb && ip link add hub type bridge"
    try:
        made = subprocess.run(["unshare", "--net", "sh", "-c", probe], capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    return made.stderr.strip()


class Machines:
    def __init__(self, children: Children) -> None:
        self._children = children
        self._hub = self._held("hub")
        self._machines: dict[str, Child] = {}
        self._ip(self._hub, "link", "set", "lo", "up")
        self._ip(self._hub, "link", "add", _BRIDGE, "type", "bridge")
        self._ip(self._hub, "addr", "add", f"{HUB}/24", "dev", _BRIDGE)
        self._ip(self._hub, "link", "set", _BRIDGE, "up")

    def add(self, name: str) -> str:
        """Its address."""
        machine = self._machines[name] = self._held(name)
        address = f"10.99.0.{len(self._machines) + 1}"
        peer = ("peer", "name", "eth0", "netns", str(machine.process.pid))
        self._ip(self._hub, "link", "add", name, "type", "veth", *peer)
        self._ip(self._hub, "link", "set", name, "master", _BRIDGE, "up")
        self._ip(machine, "link", "set", "lo", "up")
        self._ip(machine, "addr", "add", f"{address}/24", "dev", "eth0")
        self._ip(machine, "link", "set", "eth0", "up")
        return address

    def on(self, name: str, command: list[str]) -> list[str]:
        """The command that runs `command` on that machine; on the hub, if `name` is empty."""
        return [*_inside(self._machines[name] if name else self._hub), *command]

    def cut(self, name: str) -> None:
        """Nothing that it sends arrives anywhere, and nobody is told."""
        self._ip(self._hub, "link", "set", name, "down")

    def heal(self, name: str) -> None:
        self._ip(self._hub, "link", "set", name, "up")

    def _held(self, name: str) -> Child:
        code = "import sys; print('held', flush=True); sys.stdin.read()"
        held = self._children.start(name, ["unshare", "--net", sys.executable, "-c", code])
        end = time.monotonic() + LIMIT_SECONDS
        while not held.lines:
            if time.monotonic() > end or not held.lives:
                raise RuntimeError(f"no network namespace can be made: {self._children.said(held)}")
            time.sleep(0.01)
        return held

    def _ip(self, machine: Child, *arguments: str) -> None:
        subprocess.run([*_inside(machine), "ip", *arguments], check=True, stdin=subprocess.DEVNULL)


def _inside(machine: Child) -> list[str]:
    return ["nsenter", f"--net=/proc/{machine.process.pid}/ns/net", "--"]
