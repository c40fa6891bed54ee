"""Rows: what SQLite makes of two snapshots: which rows differ, as changes and as changesets."""
