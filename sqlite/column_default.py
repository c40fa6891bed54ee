"""Column default: what a record that was written before its column came reads as.

SQLite fills in the default as the column's affinity makes it. That is asked of SQLite: a table of one row, in memory,
gets the same column added. A default that isn't constant (CURRENT_TIMESTAMP, an expression) can't be added to a table
with rows; if a row lacks it nevertheless, SQLite reads NULL, and so does this.
"""

from __future__ import annotations

from contextlib import closing

import apsw

from .record import Value


def column_default(expression: str, declared: str) -> Value:
    """`expression` is SQL; `declared` a type, as SQL, "" for none."""
    with closing(apsw.Connection(":memory:")) as connection:
        # A text in double quotes, or a bare word, is one only outside parentheses; a CAST only inside them.
        connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 1)
        connection.execute("CREATE TABLE filled (a); INSERT INTO filled VALUES (1)")
        # On lines of its own, since it may end with a comment to the end of the line.
        for form in (f"(\n{expression}\n)", expression):
            try:
                connection.execute(f"ALTER TABLE filled ADD COLUMN b {declared} DEFAULT {form}")
            except apsw.SQLError:
                continue
            value = connection.execute("SELECT b FROM filled").fetchone()
            return value[0] if value else None
    return None
