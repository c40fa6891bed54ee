"""Mutants of what a request costs, on either side (docs/design/0093)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SMALL: Final = ("tests/integration/test_small_commits.py",)
WEB_PAGE: Final = "tests/attack/test_web_page.py"

OVERLOADED: Final = "tests/integration/test_overloaded.py"

MUTANTS: Final = (
    Mutant(
        "client: a connection that a call gave up is used again",
        "remote/connections.py",
        "self._closed or not is_sound or ",
        "self._closed or ",
        ("tests/integration/test_small_commits.py", "-k", "any_step"),
    ),
    Mutant(
        "client: what was given up while it was read is taken for sound",
        "remote/exchange.py",
        "                is_sound = not was_given_up\n",
        "                is_sound = True\n",
        ("tests/integration/test_small_commits.py", "-k", "any_step"),
    ),
    Mutant(
        "http: each call connects anew",
        "remote/connections.py",
        "            return self._taken(there.pop)\n",
        '            return Connection(self._connect(), "")\n',
        (*SMALL, "-k", "used_again"),
    ),
    Mutant(
        "http: a place is never given back",
        "remote/connections.py",
        "        self._room.release()\n        if self._closed",
        "        if self._closed",
        (*SMALL, "-k", "beyond_the_most"),
    ),
    Mutant(
        "http: connections that nobody uses stay open",
        "remote/connections.py",
        "            while idle and idle[0].since < last:\n",
        "            while idle and idle[0].since < 0 * last:\n",
        (*SMALL, "-k", "that_are_old"),
    ),
    Mutant(
        "http: a body's end is waited for though its length is known",
        "server/http/body.py",
        "            if not more or reservation.held_bytes == whole_bytes:\n",
        "            if not more:\n",
        (*SMALL, "-k", "nobody_asks_for_more"),
    ),
    Mutant(
        "http: whoever comes after one of ours may name any host",
        "server/http/access_control.py",
        "        if host == self._last_host:\n",
        "        if self._last_host:\n",
        (WEB_PAGE, "-k", "leads_here"),
    ),
    Mutant(
        "http: a sum of one isn't looked at",
        "volume/setsum.py",
        "            if any(map(ge, columns, PRIMES)):\n",
        "            if not columns:\n",
        ("tests/unit/test_setsum.py",),
    ),
    Mutant(
        "a worker that ends with callers in its queue turns them away",
        "remote/connect_failure.py",
        "isinstance(cause, ConnectionResetError) for",
        "False and cause for",
        ("tests/integration/test_remote_garbage.py", "-k", "reset_before"),
    ),
    Mutant(
        "overload: a push that was turned away fails",
        "remote/exchange.py",
        "                if isinstance(passing.error, Overloaded):\n",
        "                if False:\n",
        (OVERLOADED, "-k", "comes_again"),
    ),
    Mutant(
        "overload: those who were turned away come back together",
        "remote/exchange.py",
        "                seconds = pause * random.random()\n",
        "                seconds = pause\n",
        (OVERLOADED, "-k", "comes_again"),
    ),
    Mutant(
        "overload: a full queue looks like a store that is away",
        "server/log/log_writer.py",
        'raise Overloaded(f"log {self.log} is full',
        'raise Unavailable(f"log {self.log} is full',
        (OVERLOADED, "-k", "503"),
    ),
)
