"""Mutants of access: what a key is good for, and whose a volume is."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

ACCESS: Final = "tests/integration/test_access.py"
KEYS: Final = "tests/integration/test_keys.py"

MUTANTS: Final = (
    Mutant(
        "access: a volume of another organisation is one's own",
        "server/access/guarded.py",
        "            if birth.org != org:\n",
        "            if False:\n",
        (ACCESS, "-k", "everyone or anothers"),
    ),
    Mutant(
        "access: a birth that was looked at is anybody's",
        "server/access/guarded.py",
        "        birth = self._births.get((org, vid.raw))\n",
        "        birth = next((self._births.get(key) for key in list(self._births) if key[1] == vid.raw), None)\n",
        (ACCESS, "-k", "everyone or oracle"),
    ),
    Mutant(
        "access: whose names are asked for is what the caller says",
        "server/access/guarded.py",
        "            asked = msgspec.structs.replace(asked, org=who.org)\n",
        "            asked = msgspec.structs.replace(asked, org=asked.org or who.org)\n",
        (ACCESS, "-k", "its_own_names"),
    ),
    Mutant(
        "access: a name may lead to what its maker can't write",
        "server/access/guarded.py",
        "            if isinstance(asked, NameRequest) and _is_volume(asked.target):\n",
        "            if False:\n",
        (ACCESS, "-k", "leads_to_anothers or all_that_a_key"),
    ),
    Mutant(
        "access: a listing shows what can't be read",
        "server/access/guarded.py",
        "        entries = tuple(entry for entry in answer.entries if may(entry.name))\n",
        "        entries = tuple(answer.entries)\n",
        (ACCESS, "-k", "all_that_a_key"),
    ),
    Mutant(
        "access: a name that is gone gives rights for ever",
        "server/access/names_of_volumes.py",
        "        return self._now() >= self._looked_at + STALE_SECONDS\n",
        "        return False\n",
        (ACCESS, "-k", "all_that_a_key"),
    ),
    Mutant(
        "access: a reader holds what he likes for ever",
        "server/access/guarded.py",
        "    if isinstance(request, PinRequest | RenewRequest) and not 0 < request.seconds <= MOST_LEASE_SECONDS:\n",
        "    if False:\n",
        (ACCESS, "-k", "for_a_while"),
    ),
    Mutant(
        "access: a signature is not looked at",
        "server/access/credentials.py",
        '        raise Unauthorized("the token\'s signature is not its key\'s", reason="signature") from None\n',
        "        pass\n",
        (ACCESS, "-k", "token_is_refused"),
    ),
    Mutant(
        "access: a token for another store is good",
        "server/access/credentials.py",
        "    if claims.store != store:\n",
        "    if False:\n",
        (ACCESS, "-k", "token_is_refused"),
    ),
    Mutant(
        "access: a token grants more than its key",
        "server/access/principal.py",
        "        if not any(grant.prefix.startswith(prefix) for prefix in own.prefixes(right)):\n",
        "        if False:\n",
        (ACCESS, "-k", "token_is_refused"),
    ),
    Mutant(
        "access: a key is one by its id",
        "server/access/principal.py",
        "    if secret is not None and secret.public != key.public:\n",
        "    if False:\n",
        (ACCESS, "-k", "key_is_refused"),
    ),
    Mutant(
        "access: a revoked key is good",
        "server/access/principal.py",
        "    if revoked:\n",
        "    if False:\n",
        (ACCESS, "-k", "revoked or key_is_refused"),
    ),
    Mutant(
        "access: a revocation waits until what was seen is forgotten",
        "server/access/access.py",
        "            if found is not None and not found[1]:\n",
        "            if True:\n",
        (ACCESS, "-k", "ten_seconds_later"),
    ),
    Mutant(
        "access: an organisation's admin runs the store",
        "server/access/principal.py",
        '            return [""] if not self.org and self._has(Right.ADMIN, "") else []\n',
        '            return [""] if self._has(Right.ADMIN, "") else []\n',
        (ACCESS, "-k", "everyone or metrics"),
    ),
    Mutant(
        "access: a worker forgets who called another",
        "server/http/forwarding.py",
        "            scope[CALLER] = msgspec.msgpack.decode(question.caller, type=decodable(Principal))\n",
        "            pass\n",
        (KEYS, "-k", "on_one_node"),
    ),
    Mutant(
        "access: logins that others may read are used",
        "remote/logins.py",
        "            if stat.S_IMODE(mode) & _NOBODY:\n",
        "            if False:\n",
        (KEYS, "-k", "others_can_read"),
    ),
)
