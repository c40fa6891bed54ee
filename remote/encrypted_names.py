"""Encrypted names: a remote whose names are encrypted for everyone but those who hold the key (docs/encryption.md).

Around any `Remote`: names and attributes are encrypted in what is asked, and decrypted in what is answered and in an
error's words. Names that aren't of this key are passed over: a namespace is all encrypted, or none of it. Listings go
by the encrypted order, and what `next` says is handed back as it came.

Which of the keys at hand the names there are encrypted with is looked up before anything else is asked of them. A name
that is looked up is tried by the first key before, which nearly always is the one: that costs no round trip.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, cast

import msgspec

from ..volume.calls import (
    CHANGE_NAME,
    LIST_NAMES,
    LOOKUP,
    A,
    Call,
    LookupRequest,
    NameAnswer,
    NamesRequest,
    Opened,
    OpenRequest,
    PullNamesRequest,
    Q,
)
from ..volume.encryption import WrappingKey
from ..volume.errors import BadInput, BudwoodError, Forbidden, Locked, NotFound
from ..volume.ids import VolumeId
from ..volume.name_cipher import HEADER_NAME, MARK, NameCipher, NamesHeader
from ..volume.pageset import PageSet
from ..volume.protocols import PagesRead, Remote
from ..volume.records import Location
from ..volume.wire import CommitRequest, Committed, NameDelta, NameEntry, NameList, NameRequest
from .keyring import ENCRYPT_NAMES, KEY_FILE, Keyring, keyring

_NAME: Final = re.compile(r"~[a-z2-7]{26,}(?:/~[a-z2-7]{26,})*")
_LOOKED_AT: Final = 100
"""Names by which a key is recognised: some may be nobody's."""
HEADER: Final = "names_header"
"""The attribute of HEADER_NAME that holds it."""
_DIRECTORY: Final = stat.S_IFDIR | 0o700
"""What HEADER_NAME is to whoever knows nothing of it."""


def with_encrypted_names(remote: Remote) -> Remote:
    """By a key of the process's keyring. Raises BadInput where it has none."""
    return EncryptedNames(remote, keyring())


async def names_header(remote: Remote) -> NamesHeader | None:
    """By which the names there are opened; None where that is the key's alone that they were first encrypted with.
    Raises BadInput where they aren't encrypted."""
    return await _encrypted(remote).header()


async def rekey_names(remote: Remote, holders: Sequence[WrappingKey]) -> None:
    """These open the names there from here on, and no others. Raises BadInput where they aren't encrypted, Locked, and
    Conflict where somebody else said it at the same moment."""
    await _encrypted(remote).rekey(holders)


def _encrypted(remote: Remote) -> EncryptedNames:
    if not isinstance(remote, EncryptedNames):
        raise BadInput(f"names are as they are: set {ENCRYPT_NAMES}=yes where those of {remote.url} are encrypted")
    return remote


class EncryptedNames:
    """A `Remote`. What is asked raises Locked where the names there are encrypted with none of the keys at hand."""

    def __init__(self, inner: Remote, keys: Keyring) -> None:
        self._inner = inner
        self._keys = keys
        self._cipher = keys.name_cipher()
        self._is_known = False
        """Whether the names there are that cipher's."""

    @property
    def url(self) -> str:
        return self._inner.url

    async def ask(self, call: Call[Q, A], request: Q) -> A:
        if isinstance(request, LookupRequest | OpenRequest):
            return await self._look_up(call, request)
        if isinstance(request, NameRequest | NamesRequest | PullNamesRequest):
            await self._know()
        return await self._ask(call, request)

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

    async def header(self) -> NamesHeader | None:
        """See names_header."""
        entry = await self._header_entry()
        return None if entry is None else _header_in([entry])

    async def rekey(self, holders: Sequence[WrappingKey]) -> None:
        """See rekey_names."""
        await self._know()
        entry = await self._header_entry()
        request = NameRequest(
            op="bind",
            name=HEADER_NAME,
            revision=0 if entry is None else entry.revision,
            target=VolumeId.new().raw if entry is None else entry.target,
            attributes={"mode": _DIRECTORY, HEADER: self._cipher.wrapped(holders)},
        )
        await self._inner.ask(CHANGE_NAME, request)

    async def _look_up(self, call: Call[Q, A], request: Q) -> A:
        try:
            answer = await self._ask(call, request)
        except NotFound:
            if await self._was_another():
                return await self._ask(call, request)
            raise
        if cast("NameAnswer | Opened", answer).entry is None and await self._was_another():
            return await self._ask(call, request)
        return answer

    async def _was_another(self) -> bool:
        """Whether the names there turn out to be encrypted with another key than was tried."""
        tried = self._cipher
        await self._know()
        return self._cipher.id != tried.id

    async def _know(self) -> None:
        """Which key the names there are encrypted with. As long as there are none, the next call looks again."""
        if self._is_known:
            return
        try:
            listed = await self._inner.ask(LIST_NAMES, NamesRequest(prefix=MARK, limit=_LOOKED_AT))
        except NotFound:
            return
        except Forbidden:
            # To whom these names aren't shown, the first key is all there is to go by.
            self._is_known = True
            return
        header = _header_in(listed.entries)
        names = [entry.name for entry in listed.entries if _NAME.fullmatch(entry.name)]
        if header is not None:
            found = NameCipher.opened(header, self._keys.holders)
        elif names:
            found = next((each for each in self._keys.name_ciphers() if any(map(each.decrypted, names))), None)
        else:
            return
        if found is None:
            raise Locked(
                f"the names at {self.url} are encrypted, and none of the keys that were given opens them: name their "
                f"key file with {KEY_FILE}"
            )
        self._cipher, self._is_known = found, True

    async def _header_entry(self) -> NameEntry | None:
        return (await self._inner.ask(LOOKUP, LookupRequest(HEADER_NAME))).entry

    async def _ask(self, call: Call[Q, A], request: Q) -> A:
        try:
            answer = await self._inner.ask(call, self._asked(request))
        except BudwoodError as error:
            error.args = tuple(map(self._in_words, error.args))
            raise
        return cast("A", self._answered(answer, request))

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


def _header_in(entries: Iterable[NameEntry]) -> NamesHeader | None:
    """Raises Corrupt, Unsupported."""
    held = next((entry.attributes.get(HEADER) for entry in entries if entry.name == HEADER_NAME), None)
    return None if held is None else NamesHeader.parse(held)
