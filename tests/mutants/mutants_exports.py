"""Mutants of exports."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

EXPORT_CHECKSUM: Final = "tests/unit/test_export_checksum.py"
EXPORT_PARQUET: Final = "tests/unit/test_export_parquet.py"
EXPORT_UNITS: Final = "tests/unit/test_export_units.py"
EXPORT_KILLED: Final = "tests/fault/test_export_killed.py"
EXPORT_SPARK: Final = "tests/integration/test_export.py"
EXPORT_FAILING: Final = "tests/fault/test_failing_export.py"

MUTANTS: Final = (
    Mutant(
        "export: rows that are there twice cancel each other",
        "spark_export/export/checksum.py",
        "int(row_hashes(batch).sum(dtype=np.uint64))",
        "int(np.bitwise_xor.reduce(row_hashes(batch)))",
        (EXPORT_CHECKSUM,),
    ),
    Mutant(
        "export: long text counts by its length alone",
        "spark_export/export/checksum.py",
        "        hashes[row] = xxhash.xxh3_64_intdigest(bytes_[start : start + int(sizes[row])])\n",
        "        hashes[row] = int(sizes[row])\n",
        (EXPORT_CHECKSUM,),
    ),
    Mutant(
        "export: a commit that was killed is not finished",
        "spark_export/export/parquet.py",
        "            self._apply(after, take, give)\n",
        "            del after, take, give\n",
        (EXPORT_KILLED, "-k", "parquet and moved"),
    ),
    Mutant(
        "export: what was given up is left to readers",
        "spark_export/export/parquet.py",
        "            remove(join(self.url, name))\n",
        "            pass\n",
        (EXPORT_PARQUET,),
    ),
    Mutant(
        "export: files of a killed run are taken for the table's",
        "spark_export/export/parquet.py",
        "            if name.startswith(_RUN):\n",
        "            if not name:\n",
        (EXPORT_PARQUET,),
    ),
    Mutant(
        "export: a range reaches into the next file",
        "spark_export/export/incremental.py",
        "firsts[number + 1] - 1 if",
        "firsts[number + 1] if",
        (EXPORT_UNITS,),
    ),
    Mutant(
        "export: a table is written by two at once",
        "spark_export/export/lock.py",
        "fcntl.F_WRLCK",
        "fcntl.F_UNLCK",
        (EXPORT_PARQUET, "-k", "one_export"),
    ),
    Mutant(
        "export: the first row of a file is the file's before",
        "spark_export/export/incremental.py",
        'side="right"',
        'side="left"',
        (EXPORT_UNITS, "-k", "overlap"),
    ),
    Mutant(
        "export: files that overlap are kept beside what was written anew of them",
        "spark_export/export/incremental.py",
        "            last = max(last, high)\n",
        "            last = high\n",
        (EXPORT_UNITS, "-k", "overlap"),
    ),
    Mutant(
        "export: a merge that comes to other rows than changed is committed",
        "spark_export/export/incremental.py",
        "    if found.rows != wanted.rows or (summed and found != wanted):\n",
        "    if summed and found != wanted:\n",
        (EXPORT_UNITS, "-k", "damage"),
    ),
    Mutant(
        "export: a merge gives files up that hold no change",
        "spark_export/export/delta.py",
        "removes.keys() - kept)",
        "removes)",
        ("tests/integration/test_export_lakes.py", "-k", "only_the_files"),
    ),
    Mutant(
        "export: files are kept whose columns somebody renamed",
        "spark_export/export/iceberg.py",
        "len(old) < len(there) and not same_columns",
        "False and not same_columns",
        ("tests/integration/test_export_iceberg.py", "-k", "columns_that_somebody"),
    ),
    Mutant(
        "export: an older LSN goes over a newer one unasked",
        "spark_export/export/pipeline.py",
        "    if before.lsn > source.view.lsn:\n",
        "    if before.lsn > source.view.lsn + 1:\n",
        (EXPORT_SPARK, "-k", "older_lsn"),
    ),
    Mutant(
        "a snapshot of Iceberg hands on what earlier ones took out",
        "spark_export/export/iceberg_manifests.py",
        "    return manifest.added_files_count != 0 or manifest.existing_files_count != 0\n",
        "    return True\n",
        ("tests/integration/test_export_iceberg.py", "-k", "no_others"),
    ),
    Mutant(
        "what an expiry listed goes, though a snapshot has it still",
        "spark_export/export/iceberg_expiry.py",
        "        gone -= _files_of(table, table.metadata.snapshots)\n",
        "",
        ("tests/fault/test_export_killed.py", "-k", "cut_off"),
    ),
    Mutant(
        "an expiry takes what a tag names",
        "spark_export/export/iceberg_expiry.py",
        "        if parent is not None and parent.snapshot_id not in named:\n",
        "        if parent is not None:\n",
        ("tests/integration/test_export_iceberg.py", "-k", "has_a_name"),
    ),
    Mutant(
        "an expiry that was cut off leaves its files",
        "spark_export/export/iceberg.py",
        "                self._expiry.remove_files(table)\n",
        "                pass\n",
        ("tests/fault/test_export_killed.py", "-k", "cut_off"),
    ),
    Mutant(
        "nobody else's vacuum is told for how long what was replaced is kept",
        "spark_export/export/delta.py",
        "            table.alter.set_table_properties({_DELETED_FILES: age}, commit_properties=said)\n",
        "            pass\n",
        ("tests/integration/test_export_delta.py", "-k", "long_ago"),
    ),
    Mutant(
        "a vacuum doesn't say again what was exported",
        "spark_export/export/delta.py",
        "enforce_retention_duration=False, commit_properties=said, full=True)",
        "enforce_retention_duration=False, full=True)",
        ("tests/integration/test_export_delta.py", "-k", "long_ago"),
    ),
    Mutant(
        "what was exported is said again only once the log would be cleaned of it",
        "spark_export/export/delta.py",
        "if age_ms > (_OLD_MS if version == table.version() else _COVERED_MS):",
        "if age_ms > _OLD_MS and version == table.version():",
        ("tests/integration/test_export_delta.py", "-k", "others_have_cleaned"),
    ),
    Mutant(
        "a run keeps files by what stands behind their names in a URL",
        "spark_export/export/runs.py",
        "            names = sorted(map(name_of, paths))\n",
        '            names = sorted(path.rpartition("/")[2] for path in paths)\n',
        ("tests/integration/test_export_s3.py", "-k", "url-iceberg"),
    ),
    Mutant(
        "what is committed after a sweep is taken for the run that was swept",
        "spark_export/export/runs.py",
        "            if name == self.mark:\n",
        "            if False:\n",
        ("tests/integration/test_export_s3.py", "-k", "variable-delta"),
    ),
    Mutant(
        "pyiceberg isn't told where a bucket is",
        "spark_export/export/iceberg_catalog.py",
        ", **location.iceberg_properties())",
        ")",
        ("tests/integration/test_export_s3.py", "-k", "variable-iceberg"),
    ),
    Mutant(
        "export: the folder that a failed first commit leaves is somebody else's",
        "spark_export/export/delta.py",
        "{METADATA_FOLDER, DATA, _LOG} and self._is_begun()",
        "{METADATA_FOLDER, DATA}",
        (EXPORT_FAILING, "-k", "first_commit_failed"),
    ),
    Mutant(
        "export: a folder that can't be flushed ends it with a traceback",
        "spark_export/export/files.py",
        "        with file_errors(url):\n            _flush(",
        "        if True:\n            _flush(",
        (EXPORT_FAILING, "-k", "said_in_a_line"),
    ),
    Mutant(
        "export: a catalog on a full disk was asked for wrongly",
        "spark_export/export/iceberg_catalog.py",
        "                if is_of_the_disk(error):\n",
        "                if False:\n",
        (EXPORT_FAILING, "-k", "iceberg"),
    ),
)
