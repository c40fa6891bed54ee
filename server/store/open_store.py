"""Open: the store that a URL names.

file:///directory                   our own durable backend (directory_store.py)
s3://bucket/prefix  gs://…  az://…  through obstore (obstore_store.py), which is loaded only then
memory://name                       through obstore; the same URL is the same store for all of a process

Before a bucket stand two more, unless its URL says otherwise (`?hedging=no`, `?rates=no`; store_url.py): what is slow
is sent twice (hedge.py), and no prefix is asked for more than S3 takes (rates.py), what is sent twice included.

Any of them may have no create-if-absent, and is then opened with records (two_phase_store.py). They come last:

…?records=sqlite:///path/of/a/file
…?records=postgresql://host/database
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import anyio

from ...volume.errors import BadInput
from ..in_thread import in_thread
from .directory_store import FileStore
from .hedge import HedgedStore
from .protocol import Store
from .rates import RatedStore
from .records import Records
from .sqlite_records import sqlite_records
from .store_url import StoreUrl, parse_store_url
from .two_phase_store import TwoPhaseStore

if TYPE_CHECKING:
    from .obstore_store import ObstoreStore

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")


RECORDS: Final = re.compile(r"[?&]records=")


async def open_store(url: str, *, create: bool = True, hedging: bool = True, rates: bool = True) -> Store:
    """Open the store at `url`. A missing directory is made, unless `create` is false: then NotFound is raised. Without
    `hedging` nothing is sent twice, and without `rates` nothing waits, whatever the URL says.

    Raises BadInput on a URL that names no store, and Unauthorized where there are no credentials for S3. Only file://
    is looked at now: of the others, and of records, an error shows at the first request.
    """
    url, records_url = without_records(url)
    if not records_url:
        store, given = await _open_plain(url, create)
        return _paced(store, given, hedging=hedging, rates=rates)
    records = _open_records(url, records_url, create)
    try:
        store, given = await _open_plain(url, create)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await records.aclose()
        raise
    # A create that is sent twice would leave twice as much to tidy up.
    return _paced(TwoPhaseStore(store, records), given, hedging=hedging, rates=rates, creates=False)


def without_records(url: str) -> tuple[str, str]:
    """A store's URL, and that of its records ("" where it has none)."""
    store, *records = RECORDS.split(url, maxsplit=1)
    return store, records[0] if records else ""


async def _open_plain(url: str, create: bool) -> tuple[FileStore | ObstoreStore, StoreUrl | None]:
    """The store, and what the URL of a bucket says; None of any other."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise BadInput(f"{url!r} names no store: it must start with one of {known}")
    if parts.scheme == "file":
        return await FileStore.open(_directory(url, parts.netloc, parts.path), create=create), None
    if parts.scheme != "memory" and not parts.netloc:
        raise BadInput(f"{url!r} names no bucket: write {parts.scheme}://bucket/prefix")
    try:
        from .obstore_store import open_obstore
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "obstore":
            raise
        raise BadInput(f"{parts.scheme}:// needs obstore: pip install 'budwood[s3]'") from error
    given = parse_store_url(url)
    # Credentials may have to be asked for.
    bucket = await in_thread(open_obstore, url, given) if parts.scheme == "s3" else open_obstore(url, given)
    return bucket, None if parts.scheme == "memory" else given


def _paced(store: Store, given: StoreUrl | None, *, hedging: bool, rates: bool, creates: bool = True) -> Store:
    if given is None:
        return store
    rated = RatedStore(store) if rates and given.rates else store
    return HedgedStore(rated, creates=creates) if hedging and given.hedging else rated


def _open_records(store: str, url: str, create: bool) -> Records:
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        path = _directory(url, parts.netloc, parts.path)
        inside = unquote(urlsplit(store).path).rstrip("/") + "/" if store.startswith("file:") else ""
        if inside and f"{os.path.normpath(path)}/".startswith(inside):
            raise BadInput(f"{url!r} lies in the store's own directory: keep the records beside it")
        return sqlite_records(path, create=create)
    if parts.scheme in {"postgresql", "postgres"}:
        try:
            from .postgres_records import postgres_records
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "psycopg":
                raise
            raise BadInput(f"{parts.scheme}:// needs psycopg: pip install 'budwood[postgres]'") from error
        return postgres_records(url, create=create)
    raise BadInput("records are at sqlite:///path/of/a/file or at postgresql://host/database: write ?records=… so")


def _directory(url: str, host: str, path: str) -> str:
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise BadInput(f"{url!r}: write {urlsplit(url).scheme}:///, and the path in full")
    if "?" in url or "#" in url:
        raise BadInput(f"{url!r}: in such a URL write '?' as %3F and '#' as %23")
    directory = unquote(path)
    if "\0" in directory:
        raise BadInput(f"{url!r} names no directory")
    return directory
