"""The command, as typer's own documentation reads it (conf.py)."""

from __future__ import annotations

from budwood.cli.main import build

app = build()
