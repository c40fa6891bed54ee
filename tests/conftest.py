"""What all tests share: profiles for hypothesis, the event loop, and a wall between tests and the user's own budwood.

- hypothesis: profile `ci` by default: derandomised, so that a run can be repeated, and bounded; HYPOTHESIS_PROFILE=deep
  searches at random and long; `mutant` is `ci` without the search for the smallest failure. None has a deadline:
  machines are shared, and a slow example is no defect.
- Async tests carry `pytest.mark.anyio` and run on asyncio. A module whose subject must work on both loops adds
  `pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])` to its `pytestmark`.
- With TEST_ENCRYPTED=yes every volume that a home makes is encrypted, under a key of this run; with
  TEST_ENCRYPTED=names their names are, too.
- No test sees BUDWOOD_* of the user, nor the user's home or budwood.toml: default paths lead into folders of this run.
- An interrupt interrupts. A shell has SIGINT ignored in what it starts with `&`, and every child inherits that: a
  script's `make test &` would wait for ever for what a test interrupts. Here, and in children, it is as at a terminal.
- A test that hangs ends: after `faulthandler_timeout` (pyproject.toml) its process prints every thread's stack and
  exits. What a test waits for has a shorter limit, the same for all (waits.py).
- A fault point that a test armed is disarmed when it ends: one left armed would cut whatever runs next.
"""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.spark_session import every_java_starts_lightly, spark

from budwood.remote.keyring import ENCRYPT_NAMES, KEY_FILE, write_key
from budwood.volume import faults

if TYPE_CHECKING:
    from tests.postgres import PostgresServer

__all__ = ["every_java_starts_lightly", "spark"]

# An assertion in what the tests share says what was there, as one in a test does.
pytest.register_assert_rewrite(
    *{f"tests.{path.stem}" for path in Path(__file__).parent.glob("*.py")} - {"tests.conftest", "tests.spark_session"},
    "tests.fault",
    "tests.integration",
    "tests.property",
)

settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    stateful_step_count=30,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "deep",
    deadline=None,
    max_examples=3000,
    stateful_step_count=80,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "mutant",
    parent=settings.get_profile("ci"),
    max_examples=60,
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

collect_ignore = ["compliance"]
"""Suites that others made, each in a pytest of its own; tests/integration/ runs them."""

signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session", autouse=True)
def a_home_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("BUDWOOD_")]:
            patch.delenv(name)
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("xdg")))
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        if os.environ.get("TEST_ENCRYPTED") in {"yes", "names"}:
            write_key(key := tmp_path_factory.mktemp("keys") / "key")
            patch.setenv(KEY_FILE, str(key))
            patch.setenv(ENCRYPT_NAMES, "yes" if os.environ["TEST_ENCRYPTED"] == "names" else "no")
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    # Once what it asserts with is rewritten.
    from tests.postgres import PostgresServer, programs

    if programs() is None:
        assert "CI_HAS_POSTGRES" not in os.environ, "CI has PostgreSQL: apt-get install postgresql"
        pytest.skip("PostgreSQL isn't installed: apt-get install postgresql")
    with PostgresServer() as server:
        yield server


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Spark gives a Python worker ten seconds to start, a constant of its own. Where eight others want each processor
    # that isn't enough, so a test that ends with just these words is begun anew. Not every test may be: of each that
    # may the plugin asks over TCP what became of it before, which takes 40 ms.
    begun_anew = pytest.mark.flaky(reruns=3, only_rerun=["Python worker failed to connect back"])
    for item in items:
        if _speaks_of_spark(item.path):
            item.add_marker(begun_anew)
    items[:] = _in_order(items)


def _in_order(items: list[pytest.Item]) -> list[pytest.Item]:
    """As they are shared out among the processes, a run of neighbours each: the first has all that use a session of
    Spark, which is started once and is quick by then; the second begins with what takes longest."""
    in_spark = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    longest = [item for item in items if item.get_closest_marker("longest") is not None]
    others = [item for item in items if item.get_closest_marker("longest") is None]
    others.sort(key=lambda item: item.path not in in_spark)
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    second = len(items) // workers if workers > 1 else 0
    return [*others[:second], *longest, *others[second:]]


def pytest_collection_finish() -> None:
    # What was loaded and collected stays to the end: to look through it again and again takes a twentieth of the time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@cache
def _speaks_of_spark(module: Path) -> bool:
    return "spark" in module.read_text().lower()


def pytest_runtest_teardown() -> None:
    faults.disarm()
