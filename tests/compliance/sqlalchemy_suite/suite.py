"""The tests: SQLAlchemy's own, all of them.

Two of its classes fill tables of two schemas in one transaction. A schema is an attached volume here, and a transaction
writes to one volume (docs/design/0113): they are filled in a transaction each, and their tests run as they stand.
"""

# SQLAlchemy's testing package has no types.
# pyright: basic, reportWildcardImportFromLibrary=false
# mypy: disable-error-code="attr-defined,no-redef,no-untyped-call"

from __future__ import annotations

from typing import Any

from sqlalchemy.testing import config
from sqlalchemy.testing.suite import *  # noqa: F403
from sqlalchemy.testing.suite import SameNamedSchemaTableTest as _SameNamedSchemaTableTest
from sqlalchemy.testing.suite import TableViaSelectTest as _TableViaSelectTest


class _EachApart:
    """A connection, as far as it is asked here, whose every statement is a transaction."""

    def execute(self, statement: Any, *rows: Any) -> None:
        with config.db.begin() as connection:
            connection.execute(statement, *rows)


class SameNamedSchemaTableTest(_SameNamedSchemaTableTest):
    @classmethod
    def insert_data(cls, connection: Any) -> None:
        super().insert_data(_EachApart())


class TableViaSelectTest(_TableViaSelectTest):
    @classmethod
    def insert_data(cls, connection: Any) -> None:
        super().insert_data(_EachApart())
