"""ObstoreStore: s3://, gs://, az:// and memory:// through obstore (DESIGN §3).

Calls go through obstore's blocking functions in worker threads of the store's own, so that asyncio and trio serve
alike; memory:// is called in place. A cancelled call is left to itself: its thread ends by its own timeout, and a
create may still happen.

- obstore repeats a request that failed in passing, twice at most; so a create may meet its own first try and say
  AlreadyExists (see retrying.py), and an Unavailable create is never determinate.
- obstore's `offset` is exclusive and its prefixes are whole parts: listings start a little before and are cut to what
  was asked for. A page is what the store sends (1,000 keys on S3), also for `limit=1`. A store that lists out of
  order is refused.
- A range that starts beyond the end, and any range of an empty object, are errors to S3: then the object's length is
  asked for.
- Credentials, region and endpoint of S3 are found as AWS's own tools find them (aws.py); of the others they come from
  the environment, as obstore reads them (GOOGLE_*, AZURE_*).
- The first request of all is waited for FIRST_SECONDS, and where no connection comes about isn't repeated: what is
  wrong then is mostly what was typed (obstore_errors.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit, urlunsplit

import anyio
import obstore
from anyio.lowlevel import checkpoint
from obstore import exceptions
from obstore.store import MemoryStore, ObjectStore, from_url

from ...volume.errors import BadInput, NotFound, Unavailable, Unsupported
from ..in_thread import in_thread
from .aws import find_settings
from .obstore_errors import FAILURES, silent, translated, unopened
from .protocol import Data, Keys, Sizes, buffers, check_key, check_prefix, check_range, key_below
from .store_url import StoreUrl

_THREADS: Final = 64
_PAGE: Final = 1000
FIRST_SECONDS: Final = 10.0
_MEMORY: Final[dict[str, MemoryStore]] = {}
"""Stores in memory by URL: whoever opens the same URL in this process gets the same store."""

T = TypeVar("T")


def open_obstore(url: str, given: StoreUrl) -> ObstoreStore:
    """The store that a URL names, of which nothing is asked yet. Blocks while credentials are looked for: see aws.py.

    Raises BadInput on a URL that obstore can't take, Unauthorized where there are no credentials for S3.
    """
    parts = urlsplit(url)
    shown = given.shown
    if parts.scheme == "memory":
        return ObstoreStore(_MEMORY.setdefault(shown, MemoryStore()), shown, threads=0)
    options: dict[str, Any] = {"retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=20)}}
    if parts.scheme == "s3":
        found = find_settings(given)
        options |= {"config": found.config, "credential_provider": found.provider}
        if found.client:
            # They take the place of all that the environment says (AWS_TIMEOUT).
            options["client_options"] = found.client
    try:
        store = from_url(urlunsplit(parts._replace(query="")), **options)
    except FAILURES as error:
        raise unopened(error, shown) from error
    return ObstoreStore(store, shown, threads=_THREADS)


class ObstoreStore:
    """See protocol.Store."""

    def __init__(self, inner: ObjectStore, url: str, *, threads: int) -> None:
        """With no threads, calls are made in place."""
        self.url = url
        self._inner = inner
        self._limiter = anyio.CapacityLimiter(threads) if threads else None
        self._answered = False

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
        await self._put(key, data, "create")

    async def put(self, key: str, data: Data) -> None:
        """See protocol.PlainStore."""
        await self._put(key, data, "overwrite")

    async def _put(self, key: str, data: Data, mode: Literal["create", "overwrite"]) -> None:
        # One PUT, never a multipart upload, which has no create-if-absent.
        pieces = [piece for piece in buffers(data) if len(piece)] or [b""]
        put = partial(obstore.put, self._inner, check_key(key), pieces, mode=mode, use_multipart=False)
        await self._call(key, put, changing=True)

    async def made_at(self, key: str) -> datetime:
        """By the store's clock."""
        return await self._call(check_key(key), partial(self._made_at, key))

    async def delete(self, key: str) -> None:
        try:
            await self._call(check_key(key), partial(obstore.delete, self._inner, key), changing=True)
        except NotFound:
            return

    async def list(self, prefix: str, *, start: str = "", limit: int | None = None) -> Keys:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        return await self._call(prefix, partial(self._list, prefix, start, limit))

    async def sizes(self, prefix: str, *, start: str = "", limit: int | None = None) -> Sizes:
        if not check_prefix(prefix, limit) or limit == 0:
            return []
        return await self._call(prefix, partial(self._sizes, prefix, start, limit))

    async def aclose(self) -> None:
        await checkpoint()

    async def _call(self, key: str, call: Callable[[], T], *, changing: bool = False) -> T:
        if self._limiter is None:
            await checkpoint()
            return self._answer(call, key, changing)
        # Where the first request has got no answer yet, the others that began with it are as patient.
        with anyio.move_on_after(math.inf if self._answered else FIRST_SECONDS):
            request = partial(self._answer, call, key, changing)
            return await in_thread(request, abandon_on_cancel=True, limiter=self._limiter)
        raise silent(self.url, FIRST_SECONDS, changing=changing)

    def _answer(self, call: Callable[[], T], key: str, changing: bool) -> T:
        """The answer, or our error; in a thread, perhaps."""
        try:
            answer = call()
        except FAILURES as error:
            failure = translated(error, self.url, key, changing=changing, answered=self._answered)
            self._answered = self._answered or not (isinstance(failure, Unavailable) and failure.hopeless)
            raise failure from error
        self._answered = True
        return answer

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

    def _made_at(self, key: str) -> datetime:
        return obstore.head(self._inner, key)["last_modified"]

    def _size(self, key: str) -> int:
        return obstore.head(self._inner, key)["size"]

    def _list(self, prefix: str, start: str, limit: int | None) -> Keys:
        return [key for key, _ in self._sizes(prefix, start, limit)]

    def _sizes(self, prefix: str, start: str, limit: int | None) -> Sizes:
        return list(islice(self._matching(prefix, max(prefix, start)), limit))

    def _matching(self, prefix: str, start: str) -> Iterator[tuple[str, int]]:
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
                    yield key, found["size"]
