"""Mutants of tables: SQLite's pages as rows, what changed in them, streams."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

SPARK_ROWS: Final = "tests/property/test_decoded_values.py"
SPARK_CORNERS: Final = "tests/unit/test_spark_decode.py"
SPARK_FOUND: Final = "tests/unit/test_spark_found.py"
SPARK_STARTS: Final = "tests/integration/test_spark_starts.py"
SPARK_INSTANTS: Final = "tests/property/test_spark_instants.py"
SPARK_SPLITS: Final = "tests/unit/test_spark_splits.py"
SPARK_CHANGES: Final = "tests/unit/test_spark_changes.py"
SPARK_FEEDS: Final = "tests/property/test_change_feed_steps.py"
SPARK_MIRROR: Final = "tests/property/test_feed_mirror.py"
SPARK_OFFSETS: Final = "tests/unit/test_spark_offsets.py"
SPARK_STREAM: Final = "tests/integration/test_spark_stream_reader.py"
SPARK_CHAIN: Final = "tests/integration/test_spark_chain.py"
VFS_FILE: Final = "tests/unit/test_vfs_file.py"
INTERRUPTED: Final = "tests/fault/test_interrupted.py"

SHOWN: Final = "tests/unit/test_shown_cookie.py"

MUTANTS: Final = (
    Mutant(
        "schema: what took the place of local commits is known by its number",
        "sqlite/shown_cookie.py",
        "        if self._history not in {None, history}:\n",
        "        if self._history is not None and history < 0:\n",
        (SHOWN,),
    ),
    Mutant(
        "schema: what was shown and written is shown as another again",
        "sqlite/shown_cookie.py",
        "        shown = stored if written else",
        "        shown = stored if written and not self._shift else",
        (SHOWN,),
    ),
    Mutant(
        "schema: a root page is known by its number",
        "sqlite/shown_cookie.py",
        "            if root != self._root and",
        "            if root is None and",
        (SHOWN,),
    ),
    Mutant(
        "schema: a restore keeps its number",
        "sqlite/shown_cookie.py",
        '    return b"".join((page1[:40], ((int.from_bytes(last) + 1) & _MASK).to_bytes(4), page1[44:]))\n',
        "    return page1\n",
        (SHOWN,),
    ),
    Mutant(
        "change counter taken from the page",
        "vfs/file.py",
        "return (self._view.identity + self._shift) & _COUNTER_MASK",
        'return int.from_bytes(self._view.read(1)[24:28], "big") if self._length else 0',
        ("tests/integration/test_vfs_connections.py", "tests/unit/test_vfs_file.py"),
    ),
    Mutant(
        "page 1 is compared with the one before another's commit",
        "vfs/file.py",
        "        self._stored_page1 = None\n        self._warm_pages",
        '        self._stored_page1 = getattr(self, "_stored_page1", None)\n        self._warm_pages',
        ("tests/integration/test_vfs_connections.py", "-k", "page_1"),
    ),
    Mutant(
        "a failed commit leaves its pages in SQLite's cache",
        "vfs/file.py",
        "            self._shift += _FAR\n            self._discard()\n            raise",
        "            self._discard()\n            raise",
        (VFS_FILE,),
    ),
    Mutant(
        "an interrupted commit leaves half a view",
        "vfs/file.py",
        "        self._length = length\n        self._page_size = page_size\n        self._version = None\n",
        "        self._length = view.length\n        self._page_size = page_size\n        self._version = None\n",
        (INTERRUPTED, "-k", "transaction"),
    ),
    Mutant(
        "an interrupted commit that nobody saw comes back",
        "sync/commit_journal.py",
        "        except BaseException:\n"
        "            # Ctrl-C, most likely while it was flushed: nobody was told of this commit, and nobody sees it.\n"
        "            self._take_back(at)\n            raise\n",
        "        except BaseException:\n            raise\n",
        ("tests/unit/test_commit_journal.py", "-k", "struck_out"),
    ),
    Mutant(
        "an unlock that was never made leaves the view",
        "vfs/locks.py",
        "(Lock.SHARED, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW_ANEW)",
        "(Lock.SHARED, Event.LOCK_SHARED): (Lock.SHARED, Act.NOTHING)",
        (VFS_FILE, "-k", "unlock_that_was_never_made"),
    ),
    Mutant(
        "an unlock that was never made leaves the writer",
        "vfs/locks.py",
        "(Lock.EXCLUSIVE, Event.LOCK_SHARED): (Lock.SHARED, Act.TAKE_VIEW_ANEW)",
        "(Lock.EXCLUSIVE, Event.LOCK_SHARED): (Lock.EXCLUSIVE, Act.NOTHING)",
        (VFS_FILE,),
    ),
    Mutant(
        "an interrupted unlock leaves the writer",
        "vfs/file.py",
        "                if act is _TAKE_VIEW_ANEW or self._writer is not None:\n",
        "                if act is _TAKE_VIEW_ANEW:\n",
        (VFS_FILE,),
    ),
    Mutant(
        "an interrupted lock leaves the writer to the next one",
        "vfs/file.py",
        "                if self._writer is not None:\n                    self._roll_back()\n"
        "                self._begin_write()\n",
        "                self._begin_write()\n",
        (VFS_FILE,),
    ),
    Mutant(
        "two volumes are written in one transaction",
        "vfs/file.py",
        "            if other is not None and other is not self and other._dirty:\n",
        "            if False:\n",
        ("tests/integration/test_vfs_connections.py", "-k", "two_volumes"),
    ),
    Mutant(
        "spark: a record that ends early reads as null, not as the default",
        "tables/record_columns.py",
        "        self._missing = field.missing if field.missing is not None and default is not None else None\n",
        "        self._missing = None\n",
        (SPARK_ROWS, "-k", "both_engines"),
    ),
    Mutant(
        "spark: a whole number that no double equals is rounded",
        "tables/conversion.py",
        "            lost = whole & ~exact\n",
        "            lost = whole & ~fits\n",
        (SPARK_CORNERS, "-k", "double"),
    ),
    Mutant(
        "spark: a page that is no leaf is decoded",
        "tables/leaf_rows.py",
        '    check_pages(data[base] == Kind.LEAF_TABLE, numbers, key, "is no table\'s leaf")\n',
        "",
        (SPARK_CORNERS, "-k", "damage"),
    ),
    Mutant(
        "spark: the value of a cell that runs out of its record is taken from the next",
        "tables/record_columns.py",
        '        _check(value_at <= limit, rows, key, "a value that ends beyond it")\n',
        "        pass\n",
        (SPARK_CORNERS, "-k", "runs_out"),
    ),
    Mutant(
        "spark: SQLite steps onto a hole after the range",
        "tables/sparse_database.py",
        "bisect_left(tree.bounds, last) + 2",
        "bisect_left(tree.bounds, last) + 1",
        (SPARK_SPLITS, "-k", "each_engine"),
    ),
    Mutant(
        "spark: a split begins with its neighbour's last rowid",
        "tables/splits.py",
        "tree.bounds[begin + start - 1] + 1 if",
        "tree.bounds[begin + start - 1] if",
        (SPARK_SPLITS,),
    ),
    Mutant(
        "spark: a column is what a few of its values are",
        "tables/type_inference.py",
        "        most = max(integers + reals, texts, blobs)\n",
        "        most = min(each for each in (integers + reals, texts, blobs, 1 << 60) if each)\n",
        (SPARK_FOUND, "-k", "most_values"),
    ),
    Mutant(
        "spark: what was found is looked for again by whoever plans",
        "spark_export/source/datasource.py",
        "request=resolved.request.with_inferred(self._inferred)",
        "request=resolved.request",
        ("tests/integration/test_spark_ordinary.py", "-k", "looked_for_again"),
    ),
    Mutant(
        "spark: a record WITHOUT ROWID is taken to begin with the first column",
        "tables/type_inference.py",
        "    order = [*relation.key, *(column for column in stored if not column.key_place)]\n",
        "    order = stored\n",
        (SPARK_FOUND, "-k", "ordinary"),
    ),
    Mutant(
        "spark: columns that options tell are looked at all the same",
        "tables/type_inference.py",
        "        if column.name not in options.inferred and not has_known_type(column, options)\n",
        "        if column.name not in options.inferred\n",
        (SPARK_FOUND, "-k", "options_say"),
    ),
    Mutant(
        "spark: an integer that no double equals makes a DECIMAL a double",
        "tables/type_inference.py",
        "            self.beyond |= any(int(float(each)) != each for each in large)\n",
        "",
        (SPARK_CORNERS, "-k", "no_double or does_not_hold"),
    ),
    Mutant(
        "spark: a Java that is interrupted as it starts stays",
        "spark_export/session.py",
        "    with _reached_by_itself(master), _ended_unless_started():\n",
        "    with _reached_by_itself(master):\n",
        (SPARK_STARTS, "-k", "interrupted"),
    ),
    Mutant(
        "spark: the session needs the machine's own name",
        "spark_export/session.py",
        '_ADDRESSES: Final = ("SPARK_LOCAL_IP", ',
        '_ADDRESSES: Final = ("SPARK_LOCAL_IQ", ',
        (SPARK_STARTS, "-k", "own_name"),
    ),
    Mutant(
        "spark: an import names no Python to the Java that is yet to start",
        "spark_export/__init__.py",
        "name_to_java()\n_register",
        "_register",
        (SPARK_STARTS, "-k", "whatever_python3_is and before"),
    ),
    Mutant(
        "spark: register leaves the session's python3",
        "spark_export/__init__.py",
        "    name_to_session(session)\n",
        "",
        (SPARK_STARTS, "-k", "whatever_python3_is and after"),
    ),
    Mutant(
        "spark: a 29th of February in any year is a date",
        "tables/datetimes.py",
        "        good &= right & (day >= 1) & (day <= after - first)\n",
        "        good &= right & (day >= 1) & (day <= 31)\n",
        (SPARK_INSTANTS, "-k", "alone"),
    ),
    Mutant(
        "spark: a zone is added instead of taken off",
        "tables/datetimes.py",
        "            micros -= np.where(zoned, ahead, 0)\n",
        "            micros += np.where(zoned, ahead, 0)\n",
        (SPARK_INSTANTS, "-k", "alone"),
    ),
    Mutant(
        "spark: a REAL is rounded to the decimal's last place",
        "tables/decimals.py",
        " & (places / power == values)",
        "",
        (SPARK_INSTANTS, "-k", "reals"),
    ),
    Mutant(
        "spark: a decimal of many digits is taken for one of few",
        "tables/decimals.py",
        "        if self._precision > _WORD_DIGITS:\n",
        "        if self._precision > 38:\n",
        (SPARK_INSTANTS, "-k", "integers"),
    ),
    Mutant(
        "spark: an index whose pages are missing answers",
        "tables/general_engine.py",
        " NOT INDEXED{where}",
        "{where}",
        (SPARK_CORNERS, "-k", "its_own_tree"),
    ),
    Mutant(
        "changes: a value that changed in its overflow page alone is not looked for",
        "tables/changes/change_plan.py",
        "    look = leaves.within(alike if candidates.leaves is None else alike & candidates.leaves)\n",
        "    look = NO_LEAVES\n",
        (SPARK_CHANGES, "-k", "overflow_page_alone"),
    ),
    Mutant(
        "changes: equal cells are equal rows, whatever their chains hold",
        "tables/changes/page_diff.py",
        "        if task.candidates and new:\n",
        "        if not task.cells_tell and new:\n",
        (SPARK_CHANGES, "-k", "leaf_that_changed_too"),
    ),
    Mutant(
        "changes: a leaf that lies in both trees is the same, changed or not",
        "tables/changes/change_plan.py",
        "    alike = (pages_of(trees[0]) & pages_of(trees[1])) - changed\n",
        "    alike = pages_of(trees[0]) & pages_of(trees[1])\n",
        (SPARK_FEEDS,),
    ),
    Mutant(
        "changes: a leaf that reaches over a cut is told twice",
        "tables/changes/leaf_diff.py",
        "        rows = rows.select((rows.rowid >= rowids[0]) & (rows.rowid <= rowids[1]))\n",
        "        pass\n",
        (SPARK_CHANGES, "-k", "cut_by_bytes"),
    ),
    Mutant(
        "changes: -0.0 is 0.0",
        "tables/changes/change_batch.py",
        "        one, other = one.view(pa.int64()), other.view(pa.int64())\n",
        "        pass\n",
        (SPARK_CHANGES, "-k", "exactly"),
    ),
    Mutant(
        "changes: a pointer map is believed",
        "sqlite/pointer_map.py",
        " if set(heads.values()) <= held else None\n",
        "\n",
        (SPARK_CHANGES, "-k", "not_believed"),
    ),
    Mutant(
        "changes: rows that a new column's default fills are the same",
        "tables/changes/diff_sides.py",
        "            filled = column.rowid or column.default is not None or ",
        "            filled = column.rowid or ",
        (SPARK_CHANGES, "-k", "come_and_go"),
    ),
    Mutant(
        "stream: the first batch begins where the head is when it is asked",
        "spark_export/source/stream.py",
        "            return self._driver.start.json()\n",
        "            return replace(self._driver.start, lsn=self._resolved.view.lsn).json()\n",
        (SPARK_STREAM, "-k", "head_has_moved"),
    ),
    Mutant(
        "stream: the first batch reads changes instead of the table",
        "spark_export/source/offsets.py",
        "        return replace(start, lsn=available.newest)\n",
        "        return replace(start, lsn=available.newest, after=0)\n",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: a batch passes its limit",
        "spark_export/source/offsets.py",
        "min(newest, after + limit)",
        "min(newest, after + limit + 1)",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: the last LSN of a batch is left out",
        "spark_export/source/offsets.py",
        "for lsn in range(after + 1, last + 1)]",
        "for lsn in range(after + 1, last)]",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: a held LSN makes up for forgotten ones behind it",
        "spark_export/source/offsets.py",
        "(held or after == 0) and available.oldest <= after + 1",
        "held or (after == 0 and available.oldest <= 1)",
        (SPARK_OFFSETS,),
    ),
    Mutant(
        "stream: what a held start has behind it is left out",
        "spark_export/source/offsets.py",
        "        if held or after == 0:\n",
        "        if False:\n",
        (SPARK_STREAM, "-k", "a_start_that_somebody_holds_loses"),
    ),
    Mutant(
        "stream: a start that somebody holds is forgotten",
        "spark_export/source/stream.py",
        "is_readable(self._volume, first - 1)",
        "False",
        (SPARK_STREAM, "-k", "a_start_that_somebody_holds_and"),
    ),
    Mutant(
        "stream: any volume's checkpoint is continued",
        "spark_export/source/stream.py",
        "        check_batch(self.start, offset)\n",
        "        pass\n",
        (SPARK_STREAM, "-k", "another_volume"),
    ),
    Mutant(
        "stream: AvailableNow runs after the head",
        "spark_export/source/stream.py",
        "min(available.newest, self._target)",
        "available.newest",
        (SPARK_STREAM, "-k", "available_now"),
    ),
    Mutant(
        "stream: updates pass for new rows",
        "spark_export/source/stream.py",
        'if distinct(batch, CHANGE_TYPE) != ["insert"]:',
        "if not distinct(batch, CHANGE_TYPE):",
        (SPARK_STREAM, "-k", "without_the_feed"),
    ),
    Mutant(
        "stream: other columns pass",
        "spark_export/source/feed_table.py",
        "    if then == now:\n",
        "    if True:\n",
        (SPARK_STREAM, "-k", "columns_that_change"),
    ),
    Mutant(
        "stream: nothing holds the end of a batch",
        "spark_export/source/stream_leases.py",
        "        self._keep(lease)\n        return str(lease.pin)\n",
        "        return str(lease.pin)\n",
        (SPARK_STREAM, "-k", "one_lease or renewed_while"),
    ),
    Mutant(
        "stream: leases are never let go of",
        "spark_export/source/stream_leases.py",
        "if at < lsn]",
        "if at < lsn - 9]",
        (SPARK_STREAM, "-k", "one_lease"),
    ),
    Mutant(
        "stream: a killed query's last lease but one is left behind",
        "spark_export/source/stream.py",
        "            self.leases.drop(start.after, start.before)\n",
        "            pass\n",
        (SPARK_STREAM, "-k", "one_lease"),
    ),
    Mutant(
        "feed: what was cut off did not change",
        "spark_export/source/snapshot_chain.py",
        "encode_pages(written | cut)",
        "encode_pages(written)",
        (SPARK_CHAIN,),
    ),
    Mutant(
        "feed: steps between forgotten LSNs are passed over",
        "spark_export/source/steps.py",
        "if not some or some[0].lsn != after + 1:",
        "if not some:",
        (SPARK_CHAIN,),
    ),
    Mutant(
        "feed: later tasks begin with the first one's pages",
        "spark_export/source/steps.py",
        "            start = start if run else before\n",
        "            start = base\n",
        (SPARK_MIRROR,),
    ),
    Mutant(
        "feed: changes have the LSN before",
        "spark_export/source/steps.py",
        "pa.array(np.full(rows, view.lsn, np.int64))",
        "pa.array(np.full(rows, view.lsn - 1, np.int64))",
        (SPARK_MIRROR,),
    ),
)
