"""SQLAlchemy's compliance suite over volumes: a pytest of its own, since its plugin takes a whole run for itself.

    pytest -c setup.cfg --rootdir . --confcutdir . --dburi "budwood:///suite?home=DIR&remote=URL" suite.py

tests/integration/test_sqlalchemy_suite.py runs it, with a home and a store of its own. What is skipped, and what the
plugin drops without a word since its class needs what isn't there, is listed at the end, a line for each reason.
"""

# SQLAlchemy's testing package has no types.
# pyright: basic, reportWildcardImportFromLibrary=false
# mypy: disable-error-code="import-not-found,untyped-decorator,no-redef"

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.dialects.sqlite import provision as _sqlite  # noqa: F401 - it registers what is taken from it below
from sqlalchemy.testing import config, provision
from sqlalchemy.testing.plugin.pytestplugin import *  # noqa: F403

TEST_SCHEMA = "test_schema"

_left_out: Counter[str] = Counter()

for _hook in (provision.temp_table_keyword_args, provision.upsert, provision.stop_test_class_outside_fixtures):
    _hook.for_db("budwood")(_hook.fns["sqlite"])


@provision.post_configure_testing_engine.for_db("budwood")
def attach(url: Any, engine: Any, options: Any, scope: Any) -> None:
    """The schema that tests ask for is another volume of the home."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, record: Any) -> None:
        connection.execute(f"ATTACH '{TEST_SCHEMA}' AS {TEST_SCHEMA}")

    provision.post_configure_testing_engine.fns["sqlite"](url, engine, options, scope)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_collection_modifyitems")
def pytest_list_what_is_dropped(items: list[pytest.Item]) -> Generator[None]:
    before = [item.cls for item in items if isinstance(item, pytest.Function) and item.cls is not None]
    yield
    kept = {getattr(item.cls, "_sa_orig_cls_name", None) for item in items if isinstance(item, pytest.Function)}
    kept |= {item.cls.__name__ for item in items if isinstance(item, pytest.Function) and item.cls is not None}
    for dropped in before:
        if dropped.__name__ not in kept:
            _left_out[_why(dropped)] += 1


def _why(kind: Any) -> str:
    for name in getattr(kind, "__requires__", ()):
        reasons = getattr(config.requirements, name).matching_config_reasons(config._current)
        if reasons:
            return str(reasons[0]).removeprefix("left out, ")
    return f"{kind.__name__} was dropped, and nothing says why"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        _left_out[reason.partition("left out, ")[2] or reason] += 1


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.section("left out")
    for reason, number in sorted(_left_out.items()):
        terminalreporter.write_line(f"{number:4} {reason}")
