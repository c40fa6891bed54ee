"""Open: the store that a URL names.

file:///directory                   our own durable backend (directory_store.py)
s3://bucket/prefix  gs://…  az://…  through obstore (obstore_store.py), which is loaded only then
memory://name                       through obstore; the same URL is the same store for all of a process

Before a bucket stand two more, unless its URL says otherwise (`?hedging=no`, `?rates=no`; store_url.py): what is slow
is sent twice (hedge.py), and no prefix is asked for more than S3 takes (rates.py), what is sent twice included.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import unquote, urlsplit

from anyio.to_thread import run_sync

from ...volume.errors import BadInput
from .directory_store import FileStore
from .hedge import HedgedStore
from .protocol import Store
from .rates import RatedStore
from .store_url import parse_store_url

SCHEMES: Final = ("file", "s3", "gs", "az", "memory")


async def open_store(url: str, *, create: bool = True, hedging: bool = True, rates: bool = True) -> Store:
    """Open the store at `url`. A missing directory is made, unless `create` is false: then NotFound is raised. Without
    `hedging` nothing is sent twice, and without `rates` nothing waits, whatever the URL says.

    Raises BadInput on a URL that names no store, and Unauthorized where there are no credentials for S3. Only file://
    is looked at now: of the others an error shows at the first request.
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise BadInput(f"{url!r} is not a URL: {error}") from error
    if parts.scheme not in SCHEMES:
        known = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise BadInput(f"{url!r} names no store: it must start with one of {known}")
    if parts.scheme == "file":
        return await FileStore.open(_directory(url, parts.netloc, parts.path), create=create)
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
    bucket = await run_sync(open_obstore, url, given) if parts.scheme == "s3" else open_obstore(url, given)
    return (
        bucket
        if parts.scheme == "memory"
        else _paced(bucket, hedging=hedging and given.hedging, rates=rates and given.rates)
    )


def _paced(bucket: Store, *, hedging: bool, rates: bool) -> Store:
    rated = RatedStore(bucket) if rates else bucket
    return HedgedStore(rated) if hedging else rated


def _directory(url: str, host: str, path: str) -> str:
    if host not in {"", "localhost"} or not path.startswith("/"):
        raise BadInput(f"{url!r}: a file URL names a directory in full: file:///directory")
    if "?" in url or "#" in url:
        raise BadInput(f"{url!r}: in a file URL write '?' as %3F and '#' as %23")
    directory = unquote(path)
    if "\0" in directory:
        raise BadInput(f"{url!r} names no directory")
    return directory
