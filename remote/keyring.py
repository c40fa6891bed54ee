"""Keyring: the encryption keys that this process has been given, and the volumes' secrets that they have opened.

    BUDWOOD_KEY_FILE         key files, as `budwood encryption key FILE` makes them, with `:` between several
    BUDWOOD_PASSPHRASE_FILE  a file whose first line is a passphrase
    BUDWOOD_ENCRYPT_NAMES    yes: names and their attributes are encrypted, too; those of a new namespace by the first
                             of these keys

A volume opens with any key that it has a slot for; new ones are encrypted for the first that is named here, the key
files before the passphrase, and for that alone. A key is never sent anywhere.
"""

from __future__ import annotations

import base64
import binascii
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from ..volume.encryption import KEY_BYTES, EncryptionHeader, VolumeKeys, WrappingKey
from ..volume.errors import BadInput, Locked
from ..volume.lru_cache import LruCache
from ..volume.name_cipher import NameCipher
from ..volume.user_paths import expanded

KEY_FILE: Final = "BUDWOOD_KEY_FILE"
ENCRYPT_NAMES: Final = "BUDWOOD_ENCRYPT_NAMES"
PASSPHRASE_FILE: Final = "BUDWOOD_PASSPHRASE_FILE"
_MARK: Final = "budwood-key-1:"
_MOST_BYTES: Final = 4096
_VOLUMES: Final = 1024

_WORDS: Final = {"": False, "no": False, "false": False, "0": False, "yes": True, "true": True, "1": True}
Named = tuple[str, str]


class Keyring:
    """For any number of threads."""

    def __init__(self, holders: tuple[WrappingKey, ...]) -> None:
        self.holders = holders
        self._lock = threading.Lock()
        self._names: dict[int, NameCipher] = {}
        self._opened: LruCache[bytes, VolumeKeys] = LruCache(_VOLUMES)

    def keys_of(self, header: bytes) -> VolumeKeys:
        """Raises Locked where no key fits, BadInput, Unsupported."""
        with self._lock:
            found = self._opened.get(header)
        if found is None:
            found = VolumeKeys.opened(EncryptionHeader.parse(header), self.holders)
            with self._lock:
                self._opened.put(header, found)
        return found

    def new_header(self) -> bytes:
        """Of a volume that is about to be made; "" where no key was given, so that it won't be encrypted."""
        return VolumeKeys.new(self.holders[0]).header.encoded() if self.holders else b""

    def name_cipher(self, number: int = 0) -> NameCipher:
        """Of names that were first encrypted with that one of the keys. Raises BadInput where no key was given."""
        if not self.holders:
            raise BadInput(f"{ENCRYPT_NAMES} says that names are encrypted, and {KEY_FILE} names no key")
        with self._lock:
            if number not in self._names:
                self._names[number] = NameCipher.of(self.holders[number])
            return self._names[number]

    def name_ciphers(self) -> Iterator[NameCipher]:
        """Of each key: a passphrase is stretched only once it is come to."""
        return map(self.name_cipher, range(len(self.holders)))


_lock = threading.Lock()
_of_process: dict[Named, Keyring] = {}


def _in_child() -> None:
    """Another thread of the parent's may have held a lock, of this or of a keyring."""
    global _lock
    _lock = threading.Lock()
    _of_process.clear()


os.register_at_fork(after_in_child=_in_child)


def keyring() -> Keyring:
    """By what the environment names. Raises BadInput on a file that is none."""
    named = os.environ.get(KEY_FILE, ""), os.environ.get(PASSPHRASE_FILE, "")
    with _lock:
        found = _of_process.get(named)
        if found is None:
            found = _of_process[named] = Keyring(
                (*map(read_key, _paths(named[0])), *map(read_passphrase, _paths(named[1])))
            )
        return found


def names_are_encrypted() -> bool:
    """Raises BadInput on a word that says neither."""
    word = os.environ.get(ENCRYPT_NAMES, "").lower()
    if word not in _WORDS:
        raise BadInput(f"{ENCRYPT_NAMES} is yes or no, not {word!r}")
    return _WORDS[word]


def keys_of(header: bytes) -> VolumeKeys:
    """Of a volume with that encryption header. Raises as Keyring.keys_of."""
    return keyring().keys_of(header)


def unlocked(header: bytes) -> VolumeKeys | None:
    """The same; None where no key at hand fits. Raises BadInput, Unsupported."""
    try:
        return keys_of(header)
    except Locked:
        return None


def read_key(path: Path) -> WrappingKey:
    """Raises BadInput on what is no key file."""
    text = _text(path)
    try:
        key = base64.urlsafe_b64decode(text.removeprefix(_MARK)) if text.startswith(_MARK) else b""
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise BadInput(f"{path} is no key file: `budwood encryption key FILE` makes one")
    return WrappingKey(key)


def write_key(path: Path) -> WrappingKey:
    """A new one, which its owner alone may read. Raises BadInput where something is there, or nothing can be."""
    key = os.urandom(KEY_BYTES)
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(f"{_MARK}{base64.urlsafe_b64encode(key).decode()}\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        raise BadInput(f"{path} is there already, and a key that is overwritten is lost: name another file") from None
    except OSError as error:
        raise BadInput(f"{path} can't be written: {error.strerror}") from error
    return WrappingKey(key)


def read_passphrase(path: Path) -> WrappingKey:
    """Raises BadInput on a file that has none."""
    words = _text(path)
    if not words:
        raise BadInput(f"{path} has no passphrase in its first line")
    return WrappingKey(passphrase=words)


def _paths(named: str) -> list[Path]:
    return [expanded(each) for each in named.split(os.pathsep) if each]


def _text(path: Path) -> str:
    """Its first line."""
    try:
        with path.open(encoding="utf-8") as file:
            return file.readline(_MOST_BYTES).strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadInput(f"the key file {path} can't be read: {why}") from error
