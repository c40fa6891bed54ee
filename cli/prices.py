"""Prices: what an object store asks for, in any currency. Those of S3's standard class unless a TOML file says others:

    currency = "EUR"            # only a label
    storage_gb_month = 0.023    # a GB, 2^30 bytes, for a month of 30 days
    put_per_1000 = 0.005
    list_per_1000 = 0.005
    get_per_1000 = 0.0004
    egress_gb = 0.0             # a GB that is read out of the store

What a file leaves out costs as much as before. Deletes cost nothing.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Final

from ..volume.errors import BadInput

GB: Final = 1 << 30
MONTH_DAYS: Final = 30
_MOST_LABEL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    currency: str = "USD"
    storage_gb_month: float = 0.023
    put_per_1000: float = 0.005
    list_per_1000: float = 0.005
    get_per_1000: float = 0.0004
    egress_gb: float = 0.0

    def storage_a_month(self, size_bytes: float) -> float:
        return size_bytes / GB * self.storage_gb_month

    def puts_a_month(self, a_day: float) -> float:
        return a_day * MONTH_DAYS / 1000 * self.put_per_1000

    def requests(self, *, puts: float, lists: float, gets: float, sent_bytes: float) -> float:
        """What they cost, once."""
        asked = puts * self.put_per_1000 + lists * self.list_per_1000 + gets * self.get_per_1000
        return asked / 1000 + sent_bytes / GB * self.egress_gb

    def cost_of(self, figures: Mapping[str, float]) -> float:
        """Of what a node has asked of its store (volume/calls.py: RequestCounts)."""
        found = {name: figures.get(name, 0.0) for name in ("creates", "lists", "gets", "received_bytes")}
        puts, lists, gets, received = found.values()
        return self.requests(puts=puts, lists=lists, gets=gets, sent_bytes=received)


def read_prices(path: Path | None) -> Prices:
    """Raises BadInput on a file that can't be read as prices."""
    if path is None:
        return Prices()
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadInput(f"can't read the prices in {path}: {why}") from error
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"the prices in {path} are no TOML: {error}") from error
    known = {each.name for each in fields(Prices)}
    for name, value in given.items():
        if name not in known:
            raise BadInput(f"the prices in {path} name {name!r}: there are {', '.join(sorted(known))}")
        if name == "currency":
            if not isinstance(value, str) or not value.isprintable() or not 0 < len(value) <= _MOST_LABEL:
                raise BadInput(f"the currency in {path} is a word of up to {_MOST_LABEL} letters, in quotes")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise BadInput(f"{name} in {path} is {value!r}: write a number, 0 or more")
    return replace(Prices(), **given)
