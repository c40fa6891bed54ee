"""Mutants of encryption: what a page is bound to, what shows of it, and who is believed."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

PAGES: Final = "tests/unit/test_encryption.py"
ROOMS: Final = "tests/integration/test_encryption.py"
CIPHER: Final = "tests/unit/test_name_cipher.py"
NAMES: Final = "tests/integration/test_encrypted_names.py"

MUTANTS: Final = (
    Mutant(
        "encryption: a page opens in another's place",
        "volume/encryption.py",
        "    return encrypted[_BOUND] + _U32.pack(page)\n",
        "    return encrypted[_BOUND]\n",
        (PAGES,),
    ),
    Mutant(
        "encryption: all packs share a salt",
        "volume/encryption.py",
        "        self._salt = os.urandom(SALT_BYTES)\n",
        "        self._salt = bytes(SALT_BYTES)\n",
        (PAGES,),
    ),
    Mutant(
        "encryption: a counter stands still",
        "volume/encryption.py",
        "        self._counter += 1\n",
        "        self._counter = 1\n",
        (PAGES,),
    ),
    Mutant(
        "encryption: a forked process goes on with its parent's salt",
        "volume/encryption.py",
        " or self._pid != os.getpid()",
        "",
        (PAGES,),
    ),
    Mutant(
        "encryption: hashes tell that a page has an earlier content again",
        "volume/encryption.py",
        "_ITEM.pack(lsn, page)",
        "_ITEM.pack(0, page)",
        (PAGES, ROOMS, "-k", "equal"),
    ),
    Mutant(
        "encryption: hashes need no key",
        "volume/encryption.py",
        "key=self._secret.hash_key, salt=place",
        "salt=place",
        (PAGES, "-k", "equal"),
    ),
    Mutant(
        "encryption: a plain page passes in an encrypted volume, at the reader",
        "remote/page_fetch.py",
        "        if encryption:\n",
        "        if False:\n",
        (PAGES,),
    ),
    Mutant(
        "encryption: a plain page passes in an encrypted volume, at the node",
        "server/pagestore/write_segment.py",
        "    if index.volumes[0].is_encrypted is not encrypted:\n",
        "    if index.volumes[0].is_encrypted and not encrypted:\n",
        (ROOMS,),
    ),
    Mutant(
        "encryption: a segment doesn't say that its reader must know encrypted pages",
        "volume/segment.py",
        "            features |= ENCRYPTED_FRAMES\n",
        "            pass\n",
        (PAGES, "-k", "must_know"),
    ),
    Mutant(
        "encryption: what a node says last is believed of a volume that was encrypted",
        "sync/volume_keys.py",
        "    if record.encryption and not view.encryption:\n",
        "    if False:\n",
        (ROOMS, "-k", "never_encrypted"),
    ),
    Mutant(
        "encryption: a node that drops the header is sent pages",
        "sync/publish.py",
        "    if not told:\n",
        "    if False:\n",
        (ROOMS, "-k", "knows_nothing"),
    ),
    Mutant(
        "encryption: whoever rekeys need not have seen the header",
        "server/metastore/admission.py",
        "        if digest_of(stands) != before:\n",
        "        if False:\n",
        (ROOMS, "-k", "header"),
    ),
    Mutant(
        "encryption: another secret's header passes",
        "server/metastore/admission.py",
        "wanted.id != held.id or ",
        "",
        (ROOMS, "-k", "header"),
    ),
    Mutant(
        "encryption: a fork has no header",
        "server/node.py",
        "                encryption=volume.encryption,\n",
        "",
        (ROOMS, "-k", "forks"),
    ),
    Mutant(
        "encryption: a fold takes encrypted pages for plain ones",
        "server/upkeep/page_copies.py",
        "encrypted=frame[0].encrypted)",
        "encrypted=False)",
        (ROOMS, "-k", "folds"),
    ),
    Mutant(
        "encryption: a rekeyed volume's header is the birth's",
        "server/metastore/open_volume.py",
        "self.state.ruled.encryption or self.birth.encryption",
        "self.birth.encryption",
        (ROOMS, "-k", "rekeyed or header"),
    ),
    Mutant(
        "encryption: a client of before gets pages that it takes for damaged",
        "volume/encryption.py",
        "    if encryption and not knows:\n",
        "    if encryption is None and not knows:\n",
        ("tests/integration/test_mixed_fleet.py", "-k", "refuses"),
    ),
    Mutant(
        "encryption: a scrub doesn't use the key that it was given",
        "server/upkeep/segment_check.py",
        "                if keys is not None:\n                    found = _opened(",
        "                if keys is None is not None:\n                    found = _opened(",
        (ROOMS, "-k", "scrub"),
    ),
    Mutant(
        "encryption: a scrub doesn't hold a page against its hash",
        "server/upkeep/segment_check.py",
        "if lsn and item else item)",
        "if lsn and not item else item)",
        (ROOMS, "-k", "scrub"),
    ),
    Mutant(
        "encryption: a scrub says nothing of what it could not open",
        "server/upkeep/reach.py",
        "            self.locked.add(stream)\n",
        "            pass\n",
        (ROOMS, "-k", "scrub"),
    ),
    Mutant(
        "encryption: a key file is for everyone to read",
        "remote/keyring.py",
        "0o600",
        "0o644",
        (PAGES, "-k", "key_file"),
    ),
    Mutant(
        "encrypted names: who has none of their keys takes them for gone",
        "remote/encrypted_names.py",
        "        if found is None:\n            raise Locked(",
        "        if found is None:\n            return\n            raise Locked(",
        (NAMES,),
    ),
    Mutant(
        "encrypted names: the first key is the one, whatever was rekeyed",
        "remote/encrypted_names.py",
        "            found = NameCipher.opened(header, self._keys.holders)\n",
        "            found = self._cipher\n",
        (NAMES,),
    ),
    Mutant(
        "encrypted names: the first key is the one, whatever else is at hand",
        "remote/encrypted_names.py",
        "(each for each in self._keys.name_ciphers() if",
        "(each for each in [self._cipher] if",
        (NAMES,),
    ),
    Mutant(
        "encrypted names: a name that is looked up is tried by the first key alone",
        "remote/encrypted_names.py",
        "        return self._cipher.id != tried.id\n",
        "        return False\n",
        (NAMES,),
    ),
    Mutant(
        "encrypted names: rekeying makes another secret",
        "volume/name_cipher.py",
        "holder.wrap(id_, self._secret)",
        "holder.wrap(id_, os.urandom(64))",
        (CIPHER,),
    ),
    Mutant(
        "encrypted names: a decrypted name may be a path out",
        "volume/name_cipher.py",
        "            return check_name(",
        "            return str(",
        (CIPHER,),
    ),
    Mutant(
        "encrypted names: a part may hold several",
        "volume/name_cipher.py",
        'any(part is None or "/" in part for part in parts)',
        "any(part is None for part in parts)",
        (CIPHER,),
    ),
)
