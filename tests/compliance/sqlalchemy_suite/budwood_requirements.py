"""What SQLAlchemy's compliance suite may not ask of the dialect, each with the reason.

SQLAlchemy begins with a rule for each requirement: most hold for every database, some are closed until a dialect opens
them. All of the latter are opened here but those in LEFT_OUT, so that one that comes new is tried.
"""

from __future__ import annotations

from typing import Any, Final, cast

from sqlalchemy.testing import exclusions
from sqlalchemy.testing.requirements import SuiteRequirements

_NO_FETCH: Final = "SQLite has LIMIT and OFFSET, and no FETCH FIRST"
_NO_COMMENTS: Final = "SQLite keeps no comments on tables and columns"
_NO_ZONES: Final = "SQLite's dialect stores dates and times as text without a zone"
_FLOATS: Final = "SQLite stores numbers as 64-bit floats: some 15 digits"
_UNIONS: Final = "SQLite takes no parentheses within UNION"

LEFT_OUT: Final[dict[str, str]] = {
    # What a volume can't do is said of no requirement: see suite.py, which has the one such test.
    "aggregate_order_by": "SQLite takes ORDER BY within an aggregate from 3.44 on, and Python may have an older one",
    "array_type": "SQLite has no arrays",
    "async_dialect": "the dialect blocks; budwood.aio is what doesn't",
    "column_collation_reflection": "SQLAlchemy reflects no collations of SQLite",
    "comment_reflection": _NO_COMMENTS,
    "comment_reflection_full_unicode": _NO_COMMENTS,
    "computed_columns_default_persisted": "SQLite's computed columns are virtual unless they are said to be stored",
    "constraint_comment_reflection": _NO_COMMENTS,
    "create_or_replace_view": "SQLite has no CREATE OR REPLACE VIEW",
    "cross_schema_fk_reflection": "SQLite's foreign keys stay within one database file, a volume's likewise",
    "ctes_on_dml": "SQLite's WITH holds SELECTs alone",
    "datetime_interval": "SQLite has no intervals",
    "datetime_literals": "SQLite has no literals of dates and times",
    "datetime_timezone": _NO_ZONES,
    "datetime_timezone_historic": _NO_ZONES,
    "default_schema_name_switch": "SQLite's default schema is always main",
    "delete_from": "SQLite has no DELETE … FROM with several tables",
    "emulated_lastrowid": "SQLite knows the last row's id itself",
    "emulated_lastrowid_even_with_sequences": "SQLite knows the last row's id itself",
    "fetch_expression": _NO_FETCH,
    "fetch_first": _NO_FETCH,
    "fetch_no_order_by": _NO_FETCH,
    "fetch_offset_with_options": _NO_FETCH,
    "fetch_percent": _NO_FETCH,
    "fetch_ties": _NO_FETCH,
    "foreign_keys_reflect_as_index": "SQLite makes no index for a foreign key",
    "identity_columns": "SQLite has no identity columns",
    "identity_columns_standard": "SQLite has no identity columns",
    "implicit_default_schema": "SQLAlchemy reflects SQLite's default schema as none",
    "implicitly_named_constraints": "SQLite gives no names to constraints that have none",
    "index_reflects_included_columns": "SQLite's indexes include no further columns",
    "json_deserializer_binary": "SQLite gives JSON as text",
    "materialized_views": "SQLite has no materialized views",
    "materialized_views_reflect_pk": "SQLite has no materialized views",
    "non_updating_cascade": "SQLite's foreign keys know ON UPDATE CASCADE",
    "parens_in_union_contained_select_w_limit_offset": _UNIONS,
    "parens_in_union_contained_select_wo_limit_offset": _UNIONS,
    "precision_numerics_many_significant_digits": _FLOATS,
    "precision_numerics_retains_significant_digits": _FLOATS,
    "reflect_indexes_with_ascdesc_as_expression": "SQLAlchemy reflects SQLite's descending columns as columns",
    "reflect_indexes_with_expressions": "SQLAlchemy passes over SQLite's indexes of expressions, with a warning",
    "reflect_tables_no_columns": "SQLite has no table without a column",
    "regexp_replace": "SQLite has no regexp_replace; SQLAlchemy registers REGEXP alone",
    "schema_create_delete": "a schema is an attached volume: ATTACH makes it, not CREATE SCHEMA",
    "sequences": "SQLite has no sequences",
    "server_side_cursors": "SQLite steps through every result anyway",
    "supports_bitwise_xor": "SQLite has no operator for it",
    "supports_distinct_on": "SQLite has no DISTINCT ON",
    "table_value_constructor": "SQLite's VALUES takes no names of columns",
    "temp_table_comment_reflection": _NO_COMMENTS,
    "time_timezone": _NO_ZONES,
    "two_phase_transactions": "SQLite has no prepared transactions",
    "unique_constraints_reflect_as_index": "SQLAlchemy reflects SQLite's unique constraints as such alone",
    "unique_index_reflect_as_unique_constraints": "SQLAlchemy reflects SQLite's unique indexes as indexes alone",
    "window_range_non_numeric": "SQLite's RANGE takes numbers",
}


class Requirements(SuiteRequirements):
    def get_order_by_collation(self, config: Any) -> str:
        return "NOCASE"

    def get_isolation_levels(self, config: Any) -> dict[str, Any]:
        return {"default": "SERIALIZABLE", "supported": ["READ UNCOMMITTED", "SERIALIZABLE", "AUTOCOMMIT"]}


def _opened() -> property:
    return property(lambda self: cast("Any", exclusions).open())


def _left_out(name: str, reason: str) -> property:
    return property(lambda self: cast("Any", exclusions).skip_if(lambda: True, f"left out, {name}: {reason}"))


def _closed() -> set[str]:
    rules = {name: value for kind in SuiteRequirements.__mro__ for name, value in vars(kind).items()}
    return {
        name
        for name, value in rules.items()
        if isinstance(value, property) and value.fget is not None and "closed" in value.fget.__code__.co_names
    }


for _name in _closed() - LEFT_OUT.keys():
    setattr(Requirements, _name, _opened())
for _name, _reason in LEFT_OUT.items():
    setattr(Requirements, _name, _left_out(_name, _reason))
