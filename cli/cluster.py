"""A cluster for verbs that may run as one job of Spark: --spark, and --master to say where."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

from .common_options import flag, option
from .exit_status import Call

if TYPE_CHECKING:
    from ..spark_export.upkeep.cluster import Cluster

Spark = Annotated[bool, flag("--spark", "As one job of Spark, spread over its executors.")]
Master = Annotated[str | None, option("--master", "URL", "Where Spark runs, with --spark: local[*] unless told.")]


@contextmanager
def cluster(verb: str, store: str, *, spark: bool, master: str | None) -> Generator[Cluster | None]:
    """None without --spark. Raises UsageError that says what to install, where something is missing."""
    if not spark:
        if master is not None:
            raise Call("--master says where Spark runs: add --spark")
        yield None
        return
    from ..spark_export.session import check_libraries

    check_libraries()
    from ..spark_export.upkeep.cluster import started

    try:
        with started(f"budwood {verb}", master or "local[*]", store) as found:
            yield found
    except KeyboardInterrupt:
        # Java is interrupted as well, and what that looked like from here is not what happened.
        raise KeyboardInterrupt from None
