"""Store URL: what a store's URL says behind its `?`.

    s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu-west-1&profile=work
    gs://bucket/prefix?hedging=no

`endpoint`, `region` and `profile` are S3's (aws.py); `hedging` and `rates`, yes or no, any bucket's (open_store.py).
What isn't known is refused: a typing mistake would else be another store, or the same one with other credentials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from ...volume.errors import BadInput

_SWITCHES: Final = ("hedging", "rates")
_S3: Final = ("endpoint", "region", "profile")
KNOWN: Final = {"s3": (*_S3, *_SWITCHES), "gs": _SWITCHES, "az": _SWITCHES}


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """`shown` is the URL without user, password and options."""

    shown: str
    endpoint: str = ""
    region: str = ""
    profile: str = ""
    hedging: bool = True
    rates: bool = True


def parse_store_url(url: str) -> StoreUrl:
    """Raises BadInput on options that aren't known, are said twice, or say nothing."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    known = KNOWN.get(parts.scheme, ())
    given: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in known:
            words = f"it has {', '.join(known)}" if known else f"{parts.scheme}:// has none"
            raise BadInput(f"{shown} has no option {name[:50]!r}: {words}")
        if name in given or not value:
            raise BadInput(f"{shown}: the option {name} is said {'twice' if name in given else 'without a value'}")
        given[name] = value
    return StoreUrl(
        shown,
        endpoint=given.get("endpoint", ""),
        region=given.get("region", ""),
        profile=given.get("profile", ""),
        hedging=_is_on(shown, "hedging", given.get("hedging", "yes")),
        rates=_is_on(shown, "rates", given.get("rates", "yes")),
    )


def _is_on(shown: str, name: str, value: str) -> bool:
    if value not in {"yes", "no"}:
        raise BadInput(f"{shown}: write {name}=yes or {name}=no, not {value[:50]!r}")
    return value == "yes"
