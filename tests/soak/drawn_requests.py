"""Drawn requests: what a fuzz sends: every endpoint, with bodies that are noise, that are nearly right, or right, and
with headers that nobody sends.

A body that is nearly right is made from the call's own type (volume/calls.py), so that what lies behind the decoder is
met, too: ids that there are, edges of every range, names that no path should have.
"""

from __future__ import annotations

import random
import types
import typing
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from budwood.volume.calls import CALLS, JSON, MSGPACK, PARTS, SEGMENT, TIMEOUT_HEADER, Form, Row
from budwood.volume.wire import pack_part

NUMBERS: Final = (0, 1, -1, 2, 7, 255, 512, 4096, 65536, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63))
TEXTS: Final = (
    "",
    "a",
    "main",
    "private",
    "../x",
    "a/b",
    "\0",
    "ü" * 40,
    "x" * 5000,
    "%2e%2e",
    "bind",
    "move",
    "unbind",
)
PATHS: Final = (
    "/",
    "/v1",
    "/v1/",
    "/v1/nothing",
    "/healthz",
    "/readyz",
    "/metrics",
    "/openapi.json",
    "//v1/hello",
    "/%00",
)
METHODS: Final = ("POST",) * 12 + ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH")
TYPES: Final = (MSGPACK,) * 6 + (JSON, PARTS, SEGMENT, "text/plain", "", "application/msgpack; charset=x")
HEADERS: Final = (
    ("x-request-id", "a b"),
    ("x-request-id", "fine-1"),
    ("traceparent", "00-zz"),
    (TIMEOUT_HEADER, "0"),
    (TIMEOUT_HEADER, "1e9"),
    (TIMEOUT_HEADER, "-1"),
    ("accept", "image/png"),
    ("host", "evil.example"),
    ("origin", "http://evil.example"),
    ("expect", "100-continue"),
    ("authorization", "Bearer x"),
    ("x-budwood-worker", "99"),
)
UNDRAWN: Final = {"decommission"}
"""It would take the node out of its store."""


class Drawn(NamedTuple):
    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes


class Drawer:
    """Draws requests; of `vids` some are what there is."""

    def __init__(self, dice: random.Random, vids: list[bytes]) -> None:
        self.dice = dice
        self.vids = vids

    def request(self) -> Drawn:
        dice = self.dice
        headers = [dice.choice(HEADERS)] if dice.random() < 0.2 else []
        if dice.random() < 0.1:
            return Drawn(dice.choice(METHODS), dice.choice(PATHS), headers, self.noise())
        row = CALLS[dice.choice([name for name in CALLS if name not in UNDRAWN])]
        content, body = self._body(row)
        path = f"/v1/{row.name}"
        if row.form is Form.SEGMENT_IN:
            path += f"?vid={dice.choice(('', 'x', '1' * 22, 'GonzBmhQGjBQf2MDQL71dY'))}"
        if content:
            headers.append(("content-type", content))
        return Drawn(dice.choice(METHODS), path, headers, body)

    def noise(self) -> bytes:
        return self.dice.randbytes(self.dice.choice((0, 1, 7, 40, 300, 5000)))

    def _body(self, row: Row[Any, Any]) -> tuple[str, bytes]:
        dice = self.dice
        if dice.random() < 0.2:
            return dice.choice(TYPES), self.noise()
        made = self.value(row.request)
        if row.form is Form.SEGMENT_IN:
            return SEGMENT, self.noise()
        if row.form is Form.PART_IN and dice.random() < 0.7:
            return PARTS, self._damaged(pack_part(made, self.noise()))
        if dice.random() < 0.3:
            return JSON, self._damaged(msgspec.json.encode(made))
        return MSGPACK, self._damaged(msgspec.msgpack.encode(made))

    def _damaged(self, body: bytes) -> bytes:
        """Often not at all."""
        dice = self.dice
        if dice.random() < 0.6 or not body:
            return body
        at = dice.randrange(len(body))
        return dice.choice(
            (
                lambda: body[:at],
                lambda: body + self.noise(),
                lambda: body[:at] + dice.randbytes(1) + body[at + 1 :],
                lambda: body[:at] + b"\xdd\xff\xff\xff\xff" + body[at:],
                lambda: b"\x91" * dice.choice((10, 2000)) + body,
            )
        )()

    def value(self, kind: Any, depth: int = 0) -> Any:
        """One of a type, as messages use them; not checked, so that it may lie beyond what the type allows."""
        origin, parts = typing.get_origin(kind), typing.get_args(kind)
        if origin is Annotated:
            return self.value(parts[0], depth)
        if origin in (typing.Union, types.UnionType):
            return self.value(self.dice.choice(parts), depth)
        if origin is typing.Literal:
            return self.dice.choice(parts)
        if origin in (tuple, list, frozenset, set):
            return [self.value(parts[0], depth + 1) for _ in range(self.dice.choice((0, 1, 3)))] if parts else []
        if origin is dict or kind is dict:
            inside: tuple[Any, ...] = (1, "x", None, [1], {"a": {}})
            return {self.dice.choice(TEXTS): self.dice.choice(inside)}
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._struct(kind, depth)
        return self._plain(kind)

    def _struct(self, kind: type[msgspec.Struct], depth: int) -> msgspec.Struct:
        hints = typing.get_type_hints(kind, include_extras=True)
        given = {
            field.name: self.value(hints[field.name], depth + 1)
            for field in msgspec.structs.fields(kind)
            # Who doesn't say how long he waits, waits for long.
            if field.required or field.name == "timeout_seconds" or (depth < 4 and self.dice.random() < 0.7)
        }
        return kind(**given)

    def _plain(self, kind: Any) -> Any:
        dice = self.dice
        if kind is bytes:
            return dice.choice((dice.choice(self.vids), dice.choice(self.vids), dice.randbytes(16), self.noise()))
        if kind is bool:
            return dice.random() < 0.3
        if kind is int:
            return dice.choice(NUMBERS) if dice.random() < 0.7 else dice.randrange(1 << 40)
        if kind is float:
            # One of the last waits for as long as anybody may.
            return dice.choice((0.0, 0.1, -1.0, 0.001) if dice.random() < 0.98 else (float("inf"), float("nan")))
        if kind is str:
            return dice.choice(TEXTS)
        if kind is type(None):
            return None
        raise TypeError(f"no value is drawn of {kind!r}: say here how")
