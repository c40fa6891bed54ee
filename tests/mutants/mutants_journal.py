"""Mutants of the commit journal (sync/commit_journal.py and what stands around it)."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

JOURNAL: Final = "tests/unit/test_commit_journal.py"
POWER: Final = "tests/fault/test_power_loss.py"
KILLED: Final = "tests/fault/test_edge_killed.py"

MUTANTS: Final = (
    Mutant(
        "journal: who verifies takes it of a later moment than LMDB's tables",
        "sync/home_image.py",
        "if transaction is None or not left or _is_newest(data, transaction, salvage):",
        "if True:",
        (JOURNAL, "-k", "one_moment"),
    ),
    Mutant(
        "journal: a header that is lost takes its records along",
        "sync/commit_journal.py",
        "        if len(found) == 1 and (newer := self._header_behind(found[0][1])) is not None:\n"
        "            found.append((found[0][0] ^ 1, newer))\n",
        "",
        (JOURNAL, "-k", "any_block"),
    ),
    Mutant(
        "journal: a header that was made out is not written again",
        "sync/commit_journal.py",
        "            self._mend_header(header)\n",
        "            pass\n",
        (JOURNAL, "-k", "any_block"),
    ),
    Mutant(
        "journal: what was written under a lost header isn't missed",
        "sync/commit_journal.py",
        "if whole or (len(self._headers()) < 2 and self._was_flushed_behind(end)):",
        "if whole:",
        (JOURNAL, "-k", "any_block and later"),
    ),
    Mutant(
        "journal: a first journal without headers is taken for an empty one",
        "sync/commit_journal.py",
        "if header is None and (moved.generation or self._was_flushed_behind(moved.position)):",
        "if header is None and moved.generation:",
        (JOURNAL, "-k", "any_block and later"),
    ),
    Mutant(
        "journal: the last commit isn't missed",
        "sync/commit_journal.py",
        "if self._was_left and self._published_before() > end:",
        "if False:",
        (JOURNAL, "-k", "any_block"),
    ),
    Mutant(
        "journal: what is lost with its end is nobody's",
        "sync/home_image.py",
        "        if not is_told:\n            self.guessed.update(self.heads)\n",
        "",
        (JOURNAL, "-k", "any_block and later"),
    ),
    Mutant(
        "journal: what is lost with all of it is nobody's",
        "sync/home_image.py",
        "                else:\n                    self.guessed.update(self.heads)\n",
        "",
        (JOURNAL, "-k", "any_block"),
    ),
    Mutant(
        "journal: FULL does not flush",
        "sync/commit_journal.py",
        "            if durable:\n                os.fdatasync(self._fd)\n",
        "",
        (POWER, "-k", "told_durable"),
    ),
    Mutant(
        "journal: a commit is published before it is written",
        "sync/commit_journal.py",
        "        try:\n            if (done := os.pwritev",
        "        words[PUBLISHED] = tail.end + size\n        try:\n            if (done := os.pwritev",
        (JOURNAL, "-k", "flush_that_fails"),
    ),
    Mutant(
        "journal: it begins anew, and goes on, before LMDB is durable",
        "sync/journaled_commit.py",
        "        if words[DURABLE] < number:\n            environment.flush_store()\n",
        "        if words[DURABLE] < number:\n",
        (JOURNAL, "-k", "may_be_taken_back"),
    ),
    Mutant(
        "journal: what builds on an LMDB that a power loss takes back is told durable",
        "sync/environment.py",
        "        with translated(self.data_path):\n            (self._env or self._open()[0]).sync(True)\n",
        "",
        (POWER, "-k", "told_durable"),
    ),
    Mutant(
        "journal: what was durable before a power loss passes for durable after it",
        "sync/commit_journal.py",
        "        words[DURABLE] = 0\n",
        "",
        (JOURNAL, "-k", "another_transaction"),
    ),
    Mutant(
        "journal: it is appended to behind a hole",
        "sync/commit_journal.py",
        "words[ANEW] = generation, end, moved.position, 1\n",
        "words[ANEW] = generation, end, moved.position, 0\n",
        (JOURNAL, "-k", "behind_a_hole"),
    ),
    Mutant(
        "journal: a new one has no header until it is used",
        "sync/commit_journal.py",
        "            write_all(fd, pack_header(self._new_header("
        "tail.moved.generation + 1, tail.end, FIRST_BYTES)), 0)\n",
        "",
        (JOURNAL, "-k", "passed_over"),
    ),
    Mutant(
        "journal: a view does not see its tail",
        "sync/snapshot.py",
        "        self._fresh = None if part is None else part.pages\n",
        "        self._fresh = None\n",
        (JOURNAL, "-k", "another_process"),
    ),
    Mutant(
        "journal: a renewed view does not see its tail",
        "sync/snapshot.py",
        "            self._fresh = None if held is None else held.pages\n",
        "            self._fresh = None\n",
        (JOURNAL, "-k", "renewed"),
    ),
    Mutant(
        "journal: a view takes what was committed after it",
        "sync/journal_tail.py",
        "        if lsn <= upto:\n            return data\n",
        "        return data\n",
        (JOURNAL, "-k", "keeps_what_it_has"),
    ),
    Mutant(
        "journal: a record need not name the one before it",
        "sync/commit_journal.py",
        "            if record is None or record.link != link:\n",
        "            if record is None:\n",
        (JOURNAL, "-k", "another_record"),
    ),
    Mutant(
        "journal: a record need not be whole",
        "sync/journal_format.py",
        "    if checksum != _number(memoryview(data)[_SUM.size :], seed=salt):\n        return None\n",
        "",
        (JOURNAL, "-k", "torn_tail"),
    ),
    Mutant(
        "journal: what was durable and is gone passes for a torn tail",
        "sync/commit_journal.py",
        "        whole = any(record.flushed > end for record in self._standing(header, end))\n",
        "        whole = False\n",
        (JOURNAL, "-k", "hole_in_what_was_flushed"),
    ),
    Mutant(
        "journal: it is appended to though a flush of it failed",
        "sync/commit_journal.py",
        "        self.words[ANEW] = 1\n        with suppress",
        "        with suppress",
        (JOURNAL, "-k", "flush_that_fails"),
    ),
    Mutant(
        "journal: what was refused is found again",
        "sync/commit_journal.py",
        "            write_all(self._fd, bytes(BLOCK_BYTES), at)\n            os.fdatasync",
        "            os.fdatasync",
        (JOURNAL, "-k", "struck_out"),
    ),
    Mutant(
        "journal: what is moved is moved again",
        "sync/tail_keeper.py",
        '        self._environment.put(txn, "meta", _KEY, moved)\n',
        "",
        (JOURNAL, "-k", "every_kind"),
    ),
    Mutant(
        "journal: a move drops what a push has captured",
        "sync/tail_keeper.py",
        "                editor.prune(pages, lsn, keep)\n",
        "                editor.prune(pages, lsn, None)\n",
        (JOURNAL, "-k", "captured"),
    ),
    Mutant(
        "journal: a commit that shrinks its volume goes into it",
        "sync/journaled_commit.py",
        "        and change.floor >= head.length\n",
        "",
        (JOURNAL, "-k", "every_kind"),
    ),
    Mutant(
        "journal: a home that an older Budwood has open gets one",
        "sync/lmdb_open.py",
        "        if record.version == BEFORE_JOURNAL and is_alone and not read_only:\n",
        "        if record.version == BEFORE_JOURNAL and not read_only:\n",
        (JOURNAL, "-k", "while_another_process"),
    ),
    Mutant(
        "journal: a home is closed with commits in it",
        "sync/environment.py",
        "                            self.settle()\n",
        "                            pass\n",
        (JOURNAL, "-k", "was_closed"),
    ),
    Mutant(
        "journal: another home's is read",
        "sync/commit_journal.py",
        "            if header.home != self._home:\n",
        "            if not header.home:\n",
        (JOURNAL, "-k", "not_the_homes"),
    ),
    Mutant(
        "journal: what a killed writer left is not tidied up",
        "sync/snapshot.py",
        "        return self._txn.get(self._prefix, db=self.local.environment.tables.stages) is None\n",
        "        return True\n",
        (KILLED, "-k", "second_kill"),
    ),
    Mutant(
        "small commits go to the journal though the disk may not take them from there",
        "sync/journaled_commit.py",
        " or journal.is_cramped(tail, size):\n",
        ":\n",
        ("tests/fault/test_full_disk.py", "-k", "small_commits"),
    ),
)
