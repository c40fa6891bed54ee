"""Run: tables of volumes into a lake, once each, however often this is run.

    export("shop", to="file:///lake")                                     its tables, whole, as Parquet
    export("shop", to="s3://bucket/lake", format="delta", incremental=True, verify=True)
    export(every=True, remote="https://node", to=…, session=spark)        all volumes of a remote, as one job

A table goes to TO/{volume}/{table} (table_selection.folder_name makes the names safe). Steps, for all tables together:

    survey     each volume's LSN, on which a lease is taken, and its tables           executors, if volumes are many
    decide     what stands in each target; what it left unfinished is finished        driver
    plan       how the rows, or what changed, are cut into tasks                      executors, if tables are many
    read       rows and changes into files where no reader looks: one job             executors
    commit     each table by itself                                                   driver
    verify     the same rows read once more, and the target by its own reader         executors, driver

What is done, where the target holds

    nothing                                 written
    this LSN                                unchanged: nothing is read
    an earlier LSN                          written; merged with `incremental`, where it can be (incremental.py)
    a later LSN, or another volume's        refused; written with `replace`
    other columns                           written: the table takes the new ones

A table, or a volume, that fails leaves its target as it was and stops no other; at the end Incomplete is raised, or the
error itself if there was but one table. A run that is killed is run again: what it committed is unchanged then, and of
the rest nothing is left.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from ...volume.errors import BadInput
from ...volume.ids import is_pattern
from ...volume.user_paths import expanded
from ..source.lease import LEASE_SECONDS
from ..source.options import parse_types
from .files import locate
from .job import cluster_of
from .lease_keeper import LeaseKeeper
from .lock import locks
from .pipeline import ExportSettings, Pipeline, Progress
from .results import Incomplete, Result
from .table_selection import Selection, choose
from .write import COMPRESSIONS, Compression

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

Format = Literal["parquet", "delta", "iceberg"]
_LEAST_RETAINED_SECONDS: Final = 3600.0
FORMATS: Final[tuple[Format, ...]] = ("parquet", "delta", "iceberg")


def export(
    volumes: str | Sequence[str] = (),
    *,
    to: str | Path,
    format: Format = "parquet",  # noqa: A002 - what everyone calls it
    tables: Sequence[str] = (),
    every: bool = False,
    lsn: int | None = None,
    at_ms: int | None = None,
    label: str = "",
    incremental: bool = False,
    verify: bool = False,
    replace: bool = False,
    retain_seconds: float | None = None,
    compression: Compression = "zstd",
    split_bytes: int | None = None,
    catalog: str = "",
    options: Mapping[str, str] | None = None,
    remote: str | None = None,
    home: str | None = None,
    token: str | None = None,
    session: SparkSession | Callable[[], SparkSession] | None = None,
    progress: Progress | None = None,
) -> list[Result]:
    """What became of each table.

    `volumes` are names or patterns, as of an LSN, a time, or the snapshot that each calls `label`; `options` say how
    values are read, by the names of the source's options (typeMismatch, decimals, type.COLUMN); `catalog` is Iceberg's
    (iceberg.py). With `retain_seconds`, of an hour at least, versions of a Delta or Iceberg table that were replaced
    longer ago go, with the files that only they have. `session` may be a function, which is called if Spark is needed;
    without one, the session that is active is taken, or one of this machine is started and ended. `progress` is told
    what is being done, and how many bytes of how many.

    Raises BadInput, NotFound and what else befalls all tables; Incomplete where some failed, and the error itself if
    there was but one.
    """
    names = [volumes] if isinstance(volumes, str) else list(volumes)
    _check(names, format, compression, split_bytes)
    if retain_seconds is not None and retain_seconds < _LEAST_RETAINED_SECONDS:
        raise BadInput("versions of a table in a lake are retained for 1h at least: somebody may be reading them")
    _check_moment(names, lsn, at_ms, label, every)
    settings = ExportSettings(
        to=_folder(to),
        format=format,
        run=uuid.uuid4().hex,
        selection=Selection(tuple(dict.fromkeys(tables)), lsn, at_ms, label, parse_types(options or {}), LEASE_SECONDS),
        incremental=incremental,
        verify=verify,
        replace=replace,
        compression=compression,
        split_bytes=split_bytes,
        catalog=catalog,
        retain_seconds=retain_seconds,
    )
    _check_library(format)
    chosen = list(choose(names, every=every, remote=remote, home=home, token=token))
    with _cluster(session) as cluster, LeaseKeeper(LEASE_SECONDS).kept() as leases, locks(settings.to) as held:
        results = Pipeline(settings, cluster, leases, held, progress).run(chosen)
    failed = [result for result in results if result.error]
    if failed and len(results) == 1 and failed[0].error:
        raise failed[0].error
    if failed:
        raise Incomplete(results) from failed[0].error
    return results


def _check(names: Sequence[str], format_: str, compression: str, split_bytes: int | None) -> None:
    for what, value, allowed in (("format", format_, FORMATS), ("compression", compression, COMPRESSIONS)):
        if value not in allowed:
            raise BadInput(f"the {what} must be one of {', '.join(allowed)}, not {value!r}")
    if split_bytes is not None and split_bytes < 1:
        raise BadInput("the bytes of a split must be at least 1")


def _check_moment(names: Sequence[str], lsn: int | None, at_ms: int | None, label: str, every: bool) -> None:
    if sum((lsn is not None, at_ms is not None, bool(label))) > 1:
        raise BadInput("give an LSN, a time or a label, and no two of them")
    if lsn is not None and (every or len(names) != 1 or is_pattern(names[0])):
        raise BadInput("an LSN is one volume's: name one volume, or give a time or a label")
    if lsn is not None and lsn < 1:
        raise BadInput("LSNs count from 1")


def _check_library(format_: Format) -> None:
    if format_ == "delta":
        from . import delta

        delta.check_library()
    elif format_ == "iceberg":
        from . import iceberg

        iceberg.check_library()


def _folder(to: str | Path) -> str:
    """As a URL; a path is one of this machine."""
    text = str(to)
    if not text.strip():
        raise BadInput("it isn't said where to: give a folder, or a URL like s3://bucket/prefix")
    url = text if len(urlsplit(text).scheme) > 1 else expanded(text).absolute().as_uri()
    if urlsplit(url).password is not None:
        # It would stand in messages and in what is listed.
        raise BadInput("a URL to export to may hold no password: give it as the store's own tools take it (AWS_…)")
    locate(url)
    return url


Cluster = Callable[[], "SparkContext"]


@contextmanager
def _cluster(session: SparkSession | Callable[[], SparkSession] | None) -> Generator[Cluster]:
    """Started when it is first asked for: an export that finds nothing to do needs none."""
    from ..session import check_libraries, end, start

    check_libraries()
    found: SparkSession | None = None
    own = False

    def cluster() -> SparkContext:
        nonlocal found, own
        if found is None:
            from pyspark.sql import SparkSession

            found = session() if callable(session) else session or SparkSession.getActiveSession()
            own = found is None
            found = found or start("budwood export")
        return cluster_of(found)

    try:
        yield cluster
    finally:
        if own and found is not None:
            end(found)
