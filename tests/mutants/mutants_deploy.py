"""Mutants of what is handed out (the units, the container, the source distribution) and of its settings."""

from __future__ import annotations

from typing import Final

from .mutant import Mutant

DEPLOY: Final = "tests/integration/test_deploy.py"
PACKAGING: Final = "tests/integration/test_packaging.py"
SETTINGS: Final = "tests/integration/test_settings.py"

MUTANTS: Final = (
    Mutant(
        "deploy: a unit starts a verb with an option that it hasn't",
        "deploy/systemd/budwood-upkeep.service",
        "budwood upkeep --store ${STORE}",
        "budwood upkeep --store ${STORE} --for-ever",
        (DEPLOY, "-k", "is_a_verb"),
    ),
    Mutant(
        "deploy: a unit wants a variable that its example hasn't",
        "deploy/systemd/user/budwood-autosync.service",
        "--on-diverged ${ON_DIVERGED}",
        "--on-diverged ${DIVERGED}",
        (DEPLOY,),
    ),
    Mutant(
        "deploy: the image serves everyone who reaches it",
        "deploy/container/Containerfile",
        '"0.0.0.0:7447"]',
        '"0.0.0.0:7447", "--insecure", "--node", "?"]',
        (DEPLOY, "-k", "without_a_token"),
    ),
    Mutant(
        "packaging: the source distribution leaves the units out",
        "MANIFEST.in",
        "graft deploy\n",
        "",
        (PACKAGING, "-k", "packager"),
    ),
    Mutant(
        "settings: the file's token goes to another remote",
        "cli/settings.py",
        "        below = Context(expanded(home) if home else None, remote, token, cache_bytes)\n",
        "        below = Context(expanded(home) if home else None, None, token, cache_bytes)\n",
        (SETTINGS, "-k", "stays_with"),
    ),
    Mutant(
        "settings: what nobody knows is passed over",
        "cli/settings.py",
        "        if key not in settings.known[name]:\n",
        "        if not key:\n",
        (SETTINGS, "-k", "is_one_line_that_names_it"),
    ),
    Mutant(
        "settings: a file may say of every call to take over",
        "cli/settings.py",
        'Final = ("takeover", "once",',
        'Final = ("once",',
        (SETTINGS, "-k", "is_one_line_that_names_it"),
    ),
)
