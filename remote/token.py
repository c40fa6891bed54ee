"""Token: what a node asks for, and where it may go.

A token belongs to origins: scheme, host and port. It is sent to no other, whoever says that it should be.

    `budwood login`            keeps one for one of them (logins.py), which goes where no other is given
    TOKEN                      belongs to the remote that it is given with, and to nothing else
    ORIGIN[,ORIGIN…]=TOKEN     belongs to these: https://HOST:PORT; as many words as there are tokens, a bare one beside

- It doesn't go over plain HTTP but to this machine itself, where anyone on the way could read it; unless its origin was
  written out, http:// and all.
- A remote that names a log's owner names an address of its own choice. With a token in hand it is followed to origins
  that a token was given for; without one, to nothing but a node's plain address. Never from https to http, nor from
  another machine to this one.
- `withheld`: there is a token that isn't sent, since nobody gave it for the remote. A home remembers which were
  (sync/tokens.py).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self
from urllib.parse import urlsplit

from ..volume.errors import BadInput, NotOwner, Unauthorized, Unavailable
from ..volume.owner import base_url, is_loopback
from .logins import kept_for

_SCHEMES: Final = ("http://", "https://")
_PORTS: Final = {"http": 80, "https": 443}


def origin_of(url: str) -> str:
    """scheme://host:port, in one form; "" for what is no node's URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        return ""
    if not parts.hostname or not port or parts.scheme not in _PORTS:
        return ""
    host = parts.hostname.rstrip(".")
    return f"{parts.scheme}://[{host}]:{port}" if ":" in host else f"{parts.scheme}://{host}:{port}"


@dataclass(frozen=True, slots=True)
class Tokens:
    bare: str = field(default="", repr=False)
    scoped: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Token by origin."""
    withheld: bool = False

    @classmethod
    def of(cls, text: str) -> Self:
        """Raises BadInput, which doesn't show the text."""
        is_text = isinstance(text, str)  # pyright: ignore[reportUnnecessaryIsInstance]
        if not is_text or not (text.isascii() and text.isprintable()):
            raise BadInput("a token has printable ASCII characters only")
        scoped: dict[str, str] = {}
        words = text.split()
        for word in words:
            if word.startswith(_SCHEMES):
                places, _, token = word.partition("=")
                origins = [_written(place) for place in places.split(",")]
                if not token:
                    raise BadInput("no token is given for one of the origins: write ORIGIN=TOKEN")
                scoped.update(dict.fromkeys(origins, token))
        if not scoped:
            return cls(text)
        return cls(" ".join(word for word in words if not word.startswith(_SCHEMES)), scoped)

    @property
    def text(self) -> str:
        """As it was given."""
        return " ".join([self.bare] * bool(self.bare) + [f"{origin}={token}" for origin, token in self.scoped.items()])

    def withhold(self) -> Self:
        """For a remote that this token wasn't given for."""
        return replace(self, bare="", withheld=self.withheld or bool(self.bare))

    def for_remote(self, url: str) -> str:
        """What goes to the remote; "" for none. Raises BadInput where it would be read on the way."""
        origin = origin_of(url)
        if origin in self.scoped or not (origin and self.bare):
            return self.scoped.get(origin) or kept_for(origin)
        if origin.startswith("http://") and not is_loopback(origin):
            raise BadInput(
                f"the token would go to {origin} over plain http, where anyone on the way can read it: use https, or "
                f"give it as {origin}=TOKEN to say that it may"
            )
        return self.bare

    def owner_of(self, home: str, refused: NotOwner) -> str:
        """The URL of the owner that the remote `home` names: of its own origin, of one that a token was given for, or
        where no token is in hand. Raises Unavailable, Unauthorized where it isn't to be followed."""
        url = base_url(refused.owner)
        said = f"log {refused.log!r} is owned by the node at {url[:200]!r}, says {home}"
        origin, own = origin_of(url), origin_of(home)
        parts = urlsplit(url) if origin else None
        if parts is None or parts.username or parts.password or parts.query or parts.fragment:
            raise Unavailable(f"{said}, which is no node's address: start that node with --advertise http://HOST:PORT")
        if origin == own or origin in self.scoped or kept_for(origin):
            return url
        if parts.path:
            raise Unavailable(f"{said}, of which only the host is taken: give that node an address without a path")
        if own.startswith("https:") and not origin.startswith("https:"):
            raise Unavailable(f"{said}: from https only https is followed; start that node with --advertise https://…")
        if own and is_loopback(origin) and not is_loopback(own):
            raise Unavailable(
                f"{said}, which means this machine here: start that node with --advertise http://HOST:PORT"
            )
        if own and (self.for_remote(home) or self.scoped):
            raise Unauthorized(f"{said}, and no token was given for it: add {origin}=TOKEN to --token or BUDWOOD_TOKEN")
        return url

    def hint(self, url: str) -> str:
        """What to say where `url` asks for a token and was sent none."""
        if not self.withheld:
            return ""
        return (
            f"the one at hand was never given for {url}, so it was not sent: give it together with --remote {url} "
            f"once, or as {origin_of(url)}=TOKEN"
        )


def elsewhere(token: str | None, given: str | None, url: str) -> str | None:
    """What of a token that was given with the remote `given` may go to another."""
    if not token or (given and origin_of(given) == origin_of(url)):
        return token
    return Tokens.of(token).withhold().text


def usual(remote: str | None = None) -> str:
    """BUDWOOD_TOKEN, or what of it may go to this remote: where BUDWOOD_REMOTE is set too, the two belong together."""
    token, given = os.environ.get("BUDWOOD_TOKEN", ""), os.environ.get("BUDWOOD_REMOTE", "")
    return elsewhere(token, given, remote) or "" if given and remote else token


def carried(token: str, url: str) -> str:
    """The token as another machine needs it to reach that remote, which has none of the logins that are kept here."""
    tokens, origin = Tokens.of(token), origin_of(url)
    if tokens.bare or origin in tokens.scoped or not (kept := kept_for(origin)):
        return token
    return f"{token} {origin}={kept}".strip()


def _written(place: str) -> str:
    """An origin as somebody wrote it. Raises BadInput."""
    origin = origin_of(place)
    parts = urlsplit(place) if origin else None
    if parts is None or parts.username or parts.password or parts.path.strip("/") or parts.query or parts.fragment:
        raise BadInput("a token's origin is written as https://HOST:PORT, and the token after '='")
    return origin
