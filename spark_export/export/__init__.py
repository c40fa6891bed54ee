"""Export: tables of volumes into Parquet, Delta and Iceberg, once and only once.

    from budwood.spark_export import export_tables

    export_tables("shop", to="s3://bucket/lake", format="delta", remote="https://node", incremental=True)

Nothing is imported before it is asked for: Spark takes a second.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .results import Action, Incomplete, Result
    from .run import export

__all__ = ["Action", "Incomplete", "Result", "export"]

_HOMES = {"export": ".run", "Action": ".results", "Incomplete": ".results", "Result": ".results"}


if not TYPE_CHECKING:  # a checker that saw this would believe in any name

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name], __name__), name)
        globals()[name] = value  # the next look-up does not come here
        return value
