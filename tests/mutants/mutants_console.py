"""Mutants of the node's pages."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

CONSOLE: Final = "tests/integration/test_console.py"

MUTANTS: Final = (
    Mutant(
        "console: what a database says is markup",
        "server/console/console.py",
        "            autoescape=True,\n",
        "            autoescape=False,\n",
        (CONSOLE, "-k", "each_view or rows_of"),
    ),
    Mutant(
        "console: whoever asks for a page sees it",
        "server/http/access_control.py",
        "or (path.startswith(PAGES) and path not in _OPEN_PAGES)",
        "or False",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: a call takes a browser's cookie",
        "server/http/access_control.py",
        '    if given or not scope["path"].startswith(PAGES):\n',
        "    if given:\n",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: another site's form logs in",
        "server/http/access_control.py",
        '        if not _is_guarded(scope) and scope["path"] != LOGIN:\n',
        "        if not _is_guarded(scope):\n",
        (CONSOLE, "-k", "nothing_without"),
    ),
    Mutant(
        "console: a table is whatever is called so",
        "server/console/console.py",
        "            if wanted not in {row[0] for row in found}:\n",
        "            if False:\n",
        (CONSOLE, "-k", "is_said"),
    ),
)
