"""s3://, gs://, az:// and memory:// through obstore (DESIGN §3).

Calls go through obstore's blocking functions in worker threads of the store's own, so that asyncio and trio serve
alike; memory:// is called in place. A cancelled call is left to itself: its thread ends by its own timeout, and a
create may still happen.

- obstore repeats a request that failed in passing, twice at most; so a create may meet its own first try and say
  AlreadyExists (see settle.py), and an Unavailable create is never determinate.
- obstore's `offset` is exclusive and its prefixes are whole parts: listings start a little before and are cut to what
  was asked for. A page is what the store sends (1,000 keys on S3), also for `limit=1`. A store that lists out of
  order is refused.
- A range that starts beyond the end, and any range of an empty object, are errors to S3: then the object's length is
  asked for.
- Credentials, region and endpoint come from the environment, as obstore reads them (AWS_*, GOOGLE_*, AZURE_*).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import anyio
import obstore
from anyio.lowlevel import checkpoint
from anyio.to_thread import run_sync
from obstore import exceptions
from obstore.store import MemoryStore, ObjectStore, from_url

from ...volume.errors import AlreadyExists, BadInput, BudwoodError, NotFound, Unauthorized, Unavailable, Unsupported
from .protocol import Data, Keys, buffers, check_key, check_prefix, check_range, key_below

__all__ = ["ObjectsStore", "open_objects"]

_THREADS: Final = 64
_PAGE: Final = 1000
_MEMORY: Final[dict[str, MemoryStore]] = {}
"""Stores in memory by URL: whoever opens the same URL in this process gets the same store."""

_FAILURES: Final = (exceptions.BaseError, OSError, ValueError, NotImplementedError)
_NO_BUCKET: Final = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist")
_QUERY: Final = re.compile(r"\?\S*")
"""May hold a signature, which is a secret."""

T = TypeVar("T")


def open_objects(url: str) -> ObjectsStore:
    """The store that a URL names. Raises BadInput on one that obstore can't take, without asking the network."""
    parts = urlsplit(url)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if parts.scheme == "memory":
        return ObjectsStore(_MEMORY.setdefault(shown, MemoryStore()), shown, threads=0)
    try:
        # Client options would replace those of the environment (AWS_ALLOW_HTTP, AWS_TIMEOUT), so none are given.
        store = from_url(url, retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=20)})
    except _FAILURES as error:
        raise BadInput(f"can't open {shown}: {_line(error)}") from error
    return ObjectsStore(store, shown, threads=_THREADS)


class ObjectsStore:
    """See protocol.Store."""

    def __init__(self, inner: ObjectStore, url: str, *, threads: int) -> None:
        """With no threads, calls are made in place."""
        self.url = url
        self._inner = inner
        self._limiter = anyio.CapacityLimiter(threads) if threads else None

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        check_key(key)
        check_range(start, end)
        if start == end:
            end = start + 1  # An empty range can't be asked for; whether the key stands must be.
            return (await self._call(key, partial(self._get, key, start, end)))[:0]
        return await self._call(key, partial(self._get, key, start, end))

    async def get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        if size <= 0:
            raise BadInput("a tail has at least one byte")
        return await self._call(check_key(key), partial(self._get_tail, key, size))

    async def create(self, key: str, data: Data) -> None:
        # One PUT, never a multipart upload, which has no create-if-absent.
        pieces = [piece for piece in buffers(data) if len(piece)] or [b""]
        put = partial(obstore.put, self._inner, check_key(key), pieces, mode="create", use_multipart=False)
        await self._call(key, put, changing=True)

    async def delete(self, key: str) -> None:
        try:
            await self._call(check_key(key), partial(obstore.delete, self._inner, key), changing=True)
        except NotFound:
            return

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        return await self._call(prefix, partial(self._list, prefix, start, limit))

    async def aclose(self) -> None:
        await checkpoint()

    async def _call(self, key: str, call: Callable[[], T], *, changing: bool = False) -> T:
        try:
            if self._limiter is not None:
                return await run_sync(call, abandon_on_cancel=True, limiter=self._limiter)
            await checkpoint()
            return call()
        except _FAILURES as error:
            raise self._translated(error, key, changing) from error

    def _get(self, key: str, start: int, end: int | None) -> bytes:
        if start == 0 and end is None:
            return bytes(obstore.get(self._inner, key).bytes())
        wanted: Any = {"offset": start} if end is None else (start, end)
        try:
            return bytes(obstore.get(self._inner, key, options={"range": wanted}).bytes())
        except exceptions.GenericError:
            if self._size(key) <= start:
                return b""
            raise

    def _get_tail(self, key: str, size: int) -> tuple[bytes, int]:
        try:
            result = obstore.get(self._inner, key, options={"range": {"suffix": size}})
            return bytes(result.bytes()), result.meta["size"]
        except (exceptions.NotSupportedError, NotImplementedError):
            length = self._size(key)
            return self._get(key, max(length - size, 0), None), length
        except exceptions.GenericError:
            if self._size(key) == 0:
                return b"", 0
            raise

    def _size(self, key: str) -> int:
        return obstore.head(self._inner, key)["size"]

    def _list(self, prefix: str, start: str, limit: int | None) -> Keys:
        return list(islice(self._matching(prefix, max(prefix, start)), limit))

    def _matching(self, prefix: str, start: str) -> Iterator[str]:
        directory = prefix.rpartition("/")[0]
        # Without an offset the listing starts at the directory, so one is needed only behind that.
        offset = key_below(start) if start != f"{directory}/" else ""
        previous = ""
        # Its type speaks of arrow tables, whose package isn't installed.
        list_pages: Any = obstore.list  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        for page in list_pages(self._inner, directory or None, offset=offset or None, chunk_size=_PAGE):
            for found in page:
                key: str = found["path"]
                if key <= previous:
                    raise Unsupported(f"{self.url} lists its keys out of order ({previous}, {key}): use another store")
                previous = key
                if key >= start:
                    if not key.startswith(prefix):
                        return
                    yield key

    def _translated(self, error: BaseException, key: str, changing: bool) -> BudwoodError:
        text = f"{self.url}: {_line(error)}"
        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
            return AlreadyExists(f"the object {key} exists")
        if _NO_BUCKET.search(str(error)):
            return BadInput(f"{self.url}: there is no such bucket: create it first")
        if isinstance(error, FileNotFoundError):
            return NotFound(f"no object {key}")
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            return Unauthorized(f"{text}: check the store's credentials in the environment")
        if isinstance(error, exceptions.NotSupportedError | NotImplementedError):
            return Unsupported(text)
        if isinstance(error, exceptions.InvalidPathError | exceptions.UnknownConfigurationKeyError | ValueError):
            return BadInput(text)
        return Unavailable(text, determinate=not changing)


def _line(error: BaseException) -> str:
    """The error in one line, without what the server's page says and without secrets."""
    return _QUERY.sub("", str(error).split("\n")[0].split("<?xml")[0])[:300].rstrip(" :")
