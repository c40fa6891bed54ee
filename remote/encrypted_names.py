"""Encrypted names: a remote whose names are encrypted for everyone but those who hold the key (docs/encryption.md).

Around any `Remote`: names and attributes are encrypted in what is asked, and decrypted in what is answered and in an
error's words. Names that aren't of this key are passed over: a namespace is all encrypted, or none of it. Listings go
by the encrypted order, and what `next` says is handed back as it came.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import msgspec

from ..volume.calls import (
    A,
    Call,
    LookupRequest,
    NameAnswer,
    NamesRequest,
    Opened,
    OpenRequest,
    Q,
)
from ..volume.encryption import NameCipher
from ..volume.errors import BudwoodError
from ..volume.ids import VolumeId
from ..volume.pageset import PageSet
from ..volume.protocols import PagesRead, Remote
from ..volume.records import Location
from ..volume.wire import CommitRequest, Committed, NameDelta, NameEntry, NameList, NameRequest
from .keyring import keyring

_NAME: Final = re.compile(r"~[a-z2-7]{26,}(?:/~[a-z2-7]{26,})*")


def with_encrypted_names(remote: Remote) -> Remote:
    """By the first key of the process's keyring. Raises BadInput where it has none."""
    return EncryptedNames(remote, keyring().name_cipher())


class EncryptedNames:
    """A `Remote`."""

    def __init__(self, inner: Remote, cipher: NameCipher) -> None:
        self._inner = inner
        self._cipher = cipher

    @property
    def url(self) -> str:
        return self._inner.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        try:
            answer = await self._inner.ask(call, self._asked(request))
        except BudwoodError as error:
            error.args = tuple(map(self._in_words, error.args))
            raise
        return cast("A", self._answered(answer, request))

    async def write_pages(self, vid: VolumeId, segment: bytes) -> Location:
        return await self._inner.write_pages(vid, segment)

    async def commit(self, request: CommitRequest, segment: bytes = b"") -> Committed:
        return await self._inner.commit(request, segment)

    def read_pages(
        self, vid: VolumeId, lsn: int, pages: PageSet, *, extra_bytes: int = 0
    ) -> AbstractAsyncContextManager[PagesRead]:
        return self._inner.read_pages(vid, lsn, pages, extra_bytes=extra_bytes)

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _asked(self, request: Q) -> Q:
        encrypted = self._cipher.encrypted
        if isinstance(request, NameRequest):
            return msgspec.structs.replace(
                request,
                name=encrypted(request.name),
                new=encrypted(request.new),
                attributes=self._cipher.encrypted_attributes(request.attributes),
            )
        if isinstance(request, LookupRequest | OpenRequest):
            return msgspec.structs.replace(request, name=encrypted(request.name))
        if isinstance(request, NamesRequest):
            # A part that is cut off in the middle is looked for among all below its directory.
            above, slash, _ = request.prefix.rpartition("/")
            return msgspec.structs.replace(request, prefix=encrypted(above) + slash)
        return request

    def _answered(self, answer: object, request: object) -> object:
        if isinstance(answer, NameAnswer | Opened) and answer.entry is not None:
            return msgspec.structs.replace(answer, entry=self._entry(answer.entry))
        if isinstance(answer, NameList) and isinstance(request, NamesRequest):
            entries = (entry for entry in self._entries(answer.entries) if entry.name.startswith(request.prefix))
            return msgspec.structs.replace(answer, entries=tuple(entries))
        if isinstance(answer, NameDelta):
            gone = tuple(name for name in map(self._cipher.decrypted, answer.gone) if name is not None)
            return msgspec.structs.replace(answer, entries=tuple(self._entries(answer.entries)), gone=gone)
        return answer

    def _entries(self, entries: tuple[NameEntry, ...]) -> list[NameEntry]:
        return [entry for entry in map(self._entry, entries) if entry is not None]

    def _entry(self, entry: NameEntry) -> NameEntry | None:
        name = self._cipher.decrypted(entry.name)
        if name is None:
            return None
        return msgspec.structs.replace(entry, name=name, attributes=self._cipher.decrypted_attributes(entry.attributes))

    def _in_words(self, text: Any) -> Any:
        if not isinstance(text, str):
            return text
        return _NAME.sub(lambda found: self._cipher.decrypted(found[0]) or found[0], text)
