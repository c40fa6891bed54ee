"""A disk that refuses what an export writes, now and then: each refusal is one line, a lake's readers see what was
there or what is to be there, and the next run leaves exactly one copy of the table.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from budwood.spark_export.export.files import make_durable
from budwood.spark_export.export.target import METADATA_FOLDER
from budwood.volume.errors import Full, Unavailable

from ..failing_disk import FLUSH, KINDS, fail, failing_disk
from ..lakes import rows_of
from ..mounts import needs_fuse
from .one_export import bring, open_target
from .test_export_killed import expected, only_one_copy


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    with failing_disk(tmp_path) as made:
        yield made


def refused(work: Callable[[], None]) -> str:
    """What was said, if anything."""
    try:
        work()
    except (Full, Unavailable) as error:
        return str(error)
    return ""


@needs_fuse
@pytest.mark.parametrize("seed", range(int(os.environ.get("FAILING_SEEDS", "6"))))
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_the_next_run_leaves_exactly_one_copy_whatever_the_disk_refused(
    disk: tuple[Path, Path], format_: str, seed: int
) -> None:
    folder, control = disk
    dice, before = random.Random(seed), ""
    url = (folder / "lake" / "shop" / "orders").as_uri()
    for version in ("first", dice.choice(("replaced", "merged"))):
        for _ in range(dice.randrange(4)):
            chance = dice.choice((0.02, 0.1, 0.3))
            fail(control, dice.choice((errno.EIO, errno.ENOSPC)), *dice.choice(KINDS), chance=chance)
            assert "\n" not in refused(partial(bring, format_, url, version))
            control.unlink()
            if format_ != "parquet" and before:
                assert rows_of(open_target(format_, url).read()) in (expected(before), expected(version))
        bring(format_, url, version)
        only_one_copy(format_, url, version)
        before = version


@needs_fuse
@pytest.mark.parametrize("format_", ["parquet", "delta", "iceberg"])
def test_what_cannot_be_flushed_is_not_exported(disk: tuple[Path, Path], format_: str) -> None:
    folder, control = disk
    url = (folder / "lake" / "shop" / "orders").as_uri()
    (folder / "lake").mkdir()
    fail(control, errno.ENOSPC, FLUSH)
    assert refused(partial(bring, format_, url, "first"))
    control.unlink()
    bring(format_, url, "first")
    only_one_copy(format_, url, "first")


def test_a_folder_that_cannot_be_flushed_is_said_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"gone can't be read or written: .* No such file"):
        make_durable((tmp_path / "gone").as_uri())


@pytest.mark.parametrize("left", [(), ("00000000000000000000.json#1",)], ids=["nothing", "what was to be moved there"])
def test_a_delta_table_whose_first_commit_failed_is_begun_anew(tmp_path: Path, left: tuple[str, ...]) -> None:
    """Its library makes the log's folder, and the commit beside its name."""
    table = tmp_path / "lake" / "shop" / "orders"
    for folder in (METADATA_FOLDER, "data", "_delta_log"):
        (table / folder).mkdir(parents=True)
    for name in left:
        (table / "_delta_log" / name).write_text("{")
    bring("delta", table.as_uri(), "first")
    only_one_copy("delta", table.as_uri(), "first")
