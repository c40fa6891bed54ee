"""Encryption: pages that neither a node nor a bucket can read (docs/design/0123, docs/encryption.md).

An encrypted volume has a secret of its own: data keys, by number, and a hash key. The secret is *wrapped* by keys that
its owners hold, an organisation's or a passphrase, each in a *key slot*. The slots are in the volume's *encryption
header*, which the node keeps and tells with every snapshot, so that whoever holds one of these keys reads the volume
from anywhere.

    encrypted page  u8 flags, u32 number of the data key, 16 B salt, u32 counter, AES-256-GCM of the page, 16 B tag
    its key         HMAC-SHA256(data key, "budwood page" ‖ salt); its nonce is the counter, in 12 bytes
    bound to        the flags, the data key's number, the page index

A `PageCipher` draws one salt and counts the pages that it encrypts, so that no nonce comes twice under one key, however
much is written in all. Each page is packed by zstd and encrypted for itself: a node takes pages out of a frame and puts
others together (frame.py) without a key.

The *item hash* of an encrypted page (setsum.py) is keyed and takes its LSN in, so that nothing is equal about equal
pages that anyone without the secret could see.

Numbers are little-endian. Where the library is lacking that encrypts, BadInput says so.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import struct
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Self

import msgspec
import zstandard

from .envelope import UNREADABLE, encode, unpack
from .errors import BadInput, Corrupt, Locked, Unsupported
from .frame import ENCRYPTED_OVERHEAD_BYTES, page_packed, pages_unpacked
from .lru_cache import LruCache
from .setsum import HASH_SIZE

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
SALT_BYTES: Final = 16
VERSION: Final = 1
MOST_HEADER_BYTES: Final = 16 * 1024

SKELETON: Final = 1 << 0
"""Of the skeleton of a B-tree. Whoever folds lays such pages first, for cold readers."""
PACKED: Final = 1 << 1
"""zstd was worth it."""

_HEAD: Final = struct.Struct("<BI16sI")
_TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_NONCE_REST: Final = bytes(8)
_BOUND: Final = slice(0, 5)
"""Of the head: what is bound to the page, beside its index."""
_KEY: Final = slice(1, 21)
_COUNTER: Final = slice(21, 25)
_U32: Final = struct.Struct("<I")
_ITEM: Final = struct.Struct("<QI")
LACKING: Final = "encryption needs the library cryptography: pip install 'budwood[encryption]'"
_SUBKEYS: Final = 1024
"""Kept ready: as many commits' pages are read without deriving a key anew."""
_SCRYPT: Final = (1 << 15, 8, 1)
"""N, r, p: 32 MiB and some 60 ms."""

assert _HEAD.size + _TAG_BYTES == ENCRYPTED_OVERHEAD_BYTES


class KeySlot(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The secret, as one holder of a key can open it."""

    holder: bytes
    """8 bytes by which a key is recognised; "" for a passphrase."""
    salt: bytes = b""
    """Of a passphrase."""
    nonce: bytes
    wrapped: bytes


class EncryptionHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is kept of an encrypted volume where everyone may see it."""

    version: int = VERSION
    id: bytes
    """16 random bytes: the secret's. A fork has its parent's."""
    newest: int
    """The number of the data key that new pages are encrypted with."""
    slots: tuple[KeySlot, ...]

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Raises BadInput on what is none, Unsupported on a newer version's."""
        try:
            header = unpack(data, cls)
        except UNREADABLE as error:
            raise BadInput(f"that is no encryption header: {error}") from error
        if header.version > VERSION:
            raise Unsupported(f"the volume was encrypted by a newer Budwood (version {header.version}): upgrade")
        if len(header.id) != SALT_BYTES or not header.slots or not 0 < header.newest < 1 << 32:
            raise BadInput("that is no encryption header: it names no secret")
        return header

    def encoded(self) -> bytes:
        return encode(self)


def checked_header(data: bytes) -> bytes:
    """The same; "" stands for none. Raises BadInput, Unsupported."""
    if len(data) > MOST_HEADER_BYTES:
        raise BadInput(f"an encryption header has at most {MOST_HEADER_BYTES:,} bytes: fewer key slots, please")
    return EncryptionHeader.parse(data).encoded() if data else b""


def check_reader(encryption: bytes, *, knows: bool) -> None:
    """Raises Unsupported if a volume has that header, and whoever reads it knows nothing of encrypted pages: he would
    take them for damaged ones."""
    if encryption and not knows:
        raise Unsupported("the volume is encrypted, which this client knows nothing of: upgrade it")


class _Secret(msgspec.Struct, frozen=True, kw_only=True):
    hash_key: bytes
    data_keys: dict[int, bytes]


class WrappingKey:
    """A key that opens volumes' secrets: 32 bytes, or a passphrase. It is shown by nothing."""

    __slots__ = ("_derived", "_key", "_passphrase", "holder")

    def __init__(self, key: bytes = b"", *, passphrase: str = "") -> None:
        if bool(passphrase) == bool(key) or len(key) not in (0, KEY_BYTES):
            raise BadInput(f"an encryption key has {KEY_BYTES} bytes")
        self._key = key
        self._passphrase = passphrase
        self._derived: dict[bytes, bytes] = {}
        self.holder = hashlib.blake2b(key, digest_size=8, person=b"budwood.holder").digest() if key else b""

    def wrap(self, header_id: bytes, secret: bytes) -> KeySlot:
        salt = b"" if self._key else os.urandom(SALT_BYTES)
        nonce = os.urandom(_NONCE_BYTES)
        return KeySlot(
            holder=self.holder, salt=salt, nonce=nonce, wrapped=self._cipher(salt).encrypt(nonce, secret, header_id)
        )

    def unwrap(self, header_id: bytes, slot: KeySlot) -> bytes | None:
        """None where this isn't its key."""
        if slot.holder != self.holder or bool(slot.salt) != bool(self._passphrase):
            return None
        try:
            return self._cipher(slot.salt).decrypt(slot.nonce, slot.wrapped, header_id)
        except invalid_tag():
            return None
        except ValueError as error:
            raise BadInput(f"that is no encryption header: {error}") from error

    def derived(self, purpose: bytes) -> bytes:
        """64 bytes for a use of their own."""
        return hmac.digest(self._key or self._stretched(purpose), purpose, "sha512")

    def _cipher(self, salt: bytes) -> AESGCM:
        return _cipher(self._key or self._stretched(salt))

    def _stretched(self, salt: bytes) -> bytes:
        if salt not in self._derived:
            n, r, p = _SCRYPT
            self._derived[salt] = hashlib.scrypt(
                self._passphrase.encode(), salt=salt, n=n, r=r, p=p, maxmem=256 * n * r, dklen=KEY_BYTES
            )
        return self._derived[salt]


def unwrapped(header_id: bytes, slots: Sequence[KeySlot], holders: Iterable[WrappingKey]) -> bytes | None:
    """The secret, by the first of these that fits; None where none does."""
    tried = (holder.unwrap(header_id, slot) for holder in holders for slot in slots)
    return next((secret for secret in tried if secret is not None), None)


class VolumeKeys:
    """An encrypted volume's secret, opened. For any number of threads."""

    __slots__ = ("_ciphers", "_lock", "_secret", "header", "newest")

    def __init__(self, header: EncryptionHeader, secret: bytes) -> None:
        try:
            self._secret = unpack(secret, _Secret)
        except UNREADABLE as error:
            raise BadInput(f"that is no encryption header: {error}") from error
        if header.newest not in self._secret.data_keys:
            raise BadInput("that is no encryption header: it names a data key that isn't in it")
        self.header = header
        self.newest = header.newest
        self._lock = threading.Lock()
        self._ciphers: LruCache[tuple[int, bytes], AESGCM] = LruCache(_SUBKEYS)

    @classmethod
    def new(cls, *holders: WrappingKey) -> Self:
        """A new volume's, wrapped by each of these."""
        secret = _Secret(hash_key=os.urandom(KEY_BYTES), data_keys={1: os.urandom(KEY_BYTES)})
        return cls._wrapped(os.urandom(SALT_BYTES), secret, 1, holders)

    @classmethod
    def opened(cls, header: EncryptionHeader, holders: tuple[WrappingKey, ...]) -> Self:
        """By the first of these that fits. Raises Locked where none does."""
        secret = unwrapped(header.id, header.slots, holders)
        if secret is not None:
            return cls(header, secret)
        raise Locked(
            "the volume is encrypted, and "
            + ("none of the keys that were given opens it" if holders else "no key was given")
            + ": name its key file with BUDWOOD_KEY_FILE, or a file with its passphrase with BUDWOOD_PASSPHRASE_FILE"
        )

    def rewrapped(self, *holders: WrappingKey, new_data_key: bool = False) -> Self:
        """The same secret for other holders; with a new data key for what is written from here on, if asked."""
        keys, newest = dict(self._secret.data_keys), self.newest
        if new_data_key:
            newest = max(keys) + 1
            keys[newest] = os.urandom(KEY_BYTES)
        secret = _Secret(hash_key=self._secret.hash_key, data_keys=keys)
        return self._wrapped(self.header.id, secret, newest, holders)

    def item_hash(self, lsn: int, page: int, data: bytes | memoryview) -> bytes:
        """32 bytes: see setsum.py."""
        place = _ITEM.pack(lsn, page)
        return hashlib.blake2b(data, digest_size=HASH_SIZE, key=self._secret.hash_key, salt=place).digest()

    def page_cipher(self) -> PageCipher:
        return PageCipher(self)

    def decrypt(self, where: str, page: int, encrypted: bytes, page_size: int) -> bytes:
        """The page. Raises as `decrypt_pages`."""
        return self.decrypt_pages(where, [(page, encrypted)], page_size)[page]

    def decrypt_pages(self, where: str, encrypted: Iterable[tuple[int, bytes]], page_size: int) -> dict[int, bytes]:
        """Pages by index. Raises Corrupt unless these bytes were encrypted as those pages of this volume; `where` they
        came from is for the error's words."""
        pages: dict[int, bytes] = {}
        packed: dict[int, bytes] = {}
        of, cipher = b"", None
        for page, data in encrypted:
            if cipher is None or data[_KEY] != of:
                of = data[_KEY]
                cipher = self.cipher(where, int.from_bytes(of[:4], "little"), of[4:])
            try:
                plain = cipher.decrypt(data[_COUNTER] + _NONCE_REST, data[_HEAD.size :], _bound(data, page))
            except invalid_tag():
                raise Corrupt(where, f"page {page} is not what was encrypted as that page") from None
            if data[0] & PACKED:
                packed[page] = plain
            elif len(plain) != page_size:
                raise Corrupt(where, f"page {page} has {len(plain)} bytes where {page_size} belong")
            else:
                pages[page] = plain
        try:
            pages.update(zip(packed, pages_unpacked([*packed.values()], page_size), strict=True))
        except zstandard.ZstdError as error:
            raise Corrupt(where, f"of pages {min(packed)} to {max(packed)} one can't be unpacked: {error}") from error
        return pages

    def cipher(self, where: str, number: int, salt: bytes) -> AESGCM:
        with self._lock:
            found = self._ciphers.get((number, salt))
        if found is None:
            key = self._secret.data_keys.get(number)
            if key is None:
                raise Corrupt(where, f"a page is encrypted with data key {number}, which its volume has none of")
            found = _cipher(hmac.digest(key, b"budwood page" + salt, "sha256"))
            with self._lock:
                self._ciphers.put((number, salt), found)
        return found

    @classmethod
    def _wrapped(cls, header_id: bytes, secret: _Secret, newest: int, holders: tuple[WrappingKey, ...]) -> Self:
        if not holders:
            raise BadInput("a volume that nobody holds a key of could never be read")
        plain = encode(secret)
        slots = tuple(holder.wrap(header_id, plain) for holder in holders)
        return cls(EncryptionHeader(id=header_id, newest=newest, slots=slots), plain)


class PageCipher:
    """Encrypts pages, each under a nonce of its own. For one thread at a time, and not beyond a fork of the process."""

    __slots__ = ("_cipher", "_counter", "_number", "_pid", "_salt", "keys")

    def __init__(self, keys: VolumeKeys) -> None:
        self.keys = keys
        self._number = keys.newest
        self._salt = os.urandom(SALT_BYTES)
        self._cipher = keys.cipher("the volume's secret", self._number, self._salt)
        self._counter = 0
        self._pid = os.getpid()

    def encrypt(self, page: int, data: bytes | memoryview, *, skeleton: bool = False) -> bytes:
        if self._counter == 0xFFFFFFFF or self._pid != os.getpid():
            self.__init__(self.keys)  # type: ignore[misc]
        self._counter += 1
        packed = page_packed(data)
        flags = (SKELETON if skeleton else 0) | (PACKED if len(packed) < len(data) else 0)
        head = _HEAD.pack(flags, self._number, self._salt, self._counter)
        plain = packed if flags & PACKED else data
        return head + self._cipher.encrypt(head[_COUNTER] + _NONCE_REST, plain, _bound(head, page))


def _bound(encrypted: bytes, page: int) -> bytes:
    return encrypted[_BOUND] + _U32.pack(page)


def is_encrypted_skeleton(encrypted: bytes | memoryview) -> bool:
    """What its writer said of an encrypted page."""
    return bool(encrypted[0] & SKELETON)


def _cipher(key: bytes) -> AESGCM:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise BadInput(LACKING) from error
    return AESGCM(key)


def invalid_tag() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
