"""The command as the reference reads it: every verb, with its arguments, options and words."""

from __future__ import annotations

import typer.main

from budwood.cli.main import build

command = typer.main.get_command(build())
