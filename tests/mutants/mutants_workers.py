"""Mutants of a node in several processes (docs/design/0101)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

CALLS: Final = "tests/integration/test_workers.py"
KILLED: Final = "tests/fault/test_workers_killed.py"
SHARE: Final = ("tests/unit/test_share.py",)
CONNECTIONS: Final = "tests/unit/test_connections.py"

MUTANTS: Final = (
    Mutant(
        "workers: each takes a private log's volumes for its own",
        "server/metastore/share.py",
        "        return _of_volume(VolumeId.parse(log), count)\n",
        "        return 1\n",
        SHARE,
    ),
    Mutant(
        "workers: the logs of those that there are no more are nobody's",
        "server/metastore/left_behind.py",
        "        if share.is_left_behind(name):\n",
        "        if share.is_left_behind(name + name):\n",
        (KILLED, "-k", "with_fewer"),
    ),
    Mutant(
        "workers: a stand-by takes over its siblings' logs",
        "server/metastore/share.py",
        "and not 0 < self.number_of(log) <= self.count\n",
        "\n",
        SHARE,
    ),
    Mutant(
        "workers: whoever is asked makes the volume",
        "server/http/forwarding.py",
        "        return self._known.get(key) or self.share.of_volume(VolumeId(key))\n",
        "        return self._known.get(key) or self.share.number\n",
        (CALLS, "-k", "where_it_belongs"),
    ),
    Mutant(
        "workers: the volume's log is gone by as it was when it was first heard of",
        "server/http/forwarding.py",
        "            if owner and base_url(owner) == self._address:\n",
        "            if owner == self._address * 2:\n",
        (CALLS, "-k", "moves"),
    ),
    Mutant(
        "workers: who was told to do it looks whose it is again",
        "server/http/forwarding.py",
        "        at = self.share.number if question.sure else await self._whose(row, question.key)\n",
        "        at = await self._whose(row, question.key)\n",
        (CALLS, "-k", "moves"),
    ),
    Mutant(
        "workers: a sibling is taken for gone, since it is at the own address",
        "server/http/whole_node.py",
        "        if at == share.number or not owner.address or base_url(owner.address) != base_url(own):\n",
        "        if at:\n",
        (CALLS, "-k", "moves"),
    ),
    Mutant(
        "workers: hello tells of one",
        "server/http/whole_node.py",
        "        others = await asked_of(self.siblings, self.share, HELLO, Done())\n",
        "        others = dict[int, StoreInfo]()\n",
        (CALLS, "-k", "about_all"),
    ),
    Mutant(
        "workers: who waits at another worker goes on when his caller has gone",
        "server/http/forwarding.py",
        "            await while_connected(call.receive, asked, stopping=stopping)\n",
        "            await asked()\n",
        (CALLS, "-k", "gone_when_he_goes or node_stops"),
    ),
    Mutant(
        "workers: what a dead one's volumes are read for waits for it",
        "server/http/forwarding.py",
        "                    absent, then = at, self.share.number\n",
        "                    raise Unavailable('it is gone')\n",
        (CALLS, "-k", "while_a_worker_is_gone"),
    ),
    Mutant(
        "workers: what only a dead one may write is refused at once",
        "server/http/forwarding.py",
        "                then = await self._there(call, at, max(0.0, call.last - anyio.current_time()), sure=True)\n",
        "                then = None\n",
        (CALLS, "-k", "while_a_worker_is_gone"),
    ),
    Mutant(
        "workers: who dies stays away",
        "server/http/supervisor.py",
        "                if not each.pid and self._now() >= each.due_at:\n",
        "                if not each.pid and not each.ready:\n",
        (KILLED, "-k", "never_notice"),
    ),
    Mutant(
        "workers: who dies again and again is started without a pause",
        "server/http/supervisor.py",
        "        process.due_at = now + process.pause_seconds\n",
        "        process.pause_seconds = 0.0\n",
        (KILLED, "-k", "again_and_again"),
    ),
    Mutant(
        "workers: they outlive whoever started them",
        "server/http/supervisor.py",
        "prctl(_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)",
        "prctl(_SET_PDEATHSIG, 0, 0, 0, 0)",
        (KILLED, "-k", "leaves_nothing"),
    ),
    Mutant(
        "workers: told to stop, it leaves them alone",
        "server/http/supervisor.py",
        "        self._killed_at = self._now() + self._stop_seconds\n        self._send(signal.SIGTERM)\n",
        "        self._killed_at = self._now() + self._stop_seconds\n        self._send(signal.SIGKILL)\n",
        (KILLED, "-k", "told_to_stop"),
    ),
    Mutant(
        "workers: what is wrong with the call is said by each",
        "server/http/supervisor.py",
        "            self._start(self._processes[0])\n",
        "            for each in self._processes:\n                self._start(each)\n",
        (KILLED, "-k", "said_once"),
    ),
    Mutant(
        "connections: whichever was used last, wherever it leads",
        "remote/connections.py",
        "        if there:\n            return self._taken(there.pop)\n",
        "",
        (CONNECTIONS, "-k", "before_what_was_used_last"),
    ),
    Mutant(
        "connections: new ones for ever, behind a proxy",
        "remote/connections.py",
        "            if self._missed >= TRIES:\n",
        "            if self._missed >= 1000 * TRIES:\n",
        (CONNECTIONS, "-k", "given_up"),
    ),
)
