"""Spark as tests use it: one session for all tests of a run, started when the first test asks for it.

    def test_something(spark: SparkSession) -> None: …

Every Java of a run starts lightly, those of other processes too (`JAVA_OPTIONS`): to compile as for a long job takes
longer than the jobs of tests do.

It has two cores of this machine, no web page and no log, since a test reads an error from the exception; whatever it
writes lies in a folder of this run. It is skipped, with the reason, where Spark or a Java is missing. What a test
registers or sets in it, other tests see: names are to be a test's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest

from budwood.spark_export import java
from budwood.spark_export.session import check_libraries, end, start
from budwood.volume.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


JAVA_OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Little compiling, one thread that collects."""


def why_not() -> str:
    """What this machine lacks for Spark, or nothing."""
    try:
        check_libraries()
        java.find()
    except UsageError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session", autouse=True)
def every_java_starts_lightly(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What programs inherit that start a Spark of their own: the settings that it has where they give none."""
    folder = tmp_path_factory.mktemp("spark-conf")
    (folder / "spark-defaults.conf").write_text(f"spark.driver.extraJavaOptions {JAVA_OPTIONS}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(folder))
        yield


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} -Dderby.system.home={folder}",
    }
    with pytest.MonkeyPatch.context() as patch:
        # Workers in Python start where the tests do, where folders would shadow modules.
        patch.setenv("PYTHONSAFEPATH", "1")
        # What starting it sets in this process is taken back.
        for name in ("JAVA_HOME", "PYSPARK_PYTHON"):
            patch.setenv(name, os.environ.get(name, ""))
        session = start("budwood tests", master="local[2]", settings=settings)
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        end(session)
