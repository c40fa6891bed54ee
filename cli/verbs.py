"""Verbs: which there are, where the help page lists them, and which module has each.

A verb's module loads when a command line names the verb, or when all are wanted: for the help page, completion, or
words about a verb that there isn't.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Final

PANELS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "Volumes": {
        "volumes": ("create", "import", "export", "clone", "fork", "mv", "rm", "ls", "status", "log"),
        "modes": ("mode", "bindings"),
    },
    "Sync": {
        "syncing": ("push", "pull", "fetch", "reset", "move"),
        "autosyncing": ("autosync",),
        "replaying": ("replay", "merge"),
        "fingerprint": ("fingerprint",),
    },
    "History": {
        "difference": ("diff",),
        "listening": ("listen",),
        "retention": ("pins", "pin", "unpin", "retain"),
        "care": ("restore",),
    },
    "SQL": {"query": ("sql", "shell")},
    "Mount": {"mounting": ("mount", "umount", "mounts")},
    "Spark": {"export": ("spark-export",)},
    "Server": {
        "serve": ("serve",),
        "upkeep": ("upkeep", "gc", "to-native"),
        "nodes": ("nodes", "takeover", "decommission"),
        "transactions": ("transactions",),
        "scrub": ("scrub",),
        "log": ("repair-log",),
        "cost": ("cost",),
        "orphans": ("orphans",),
        "top": ("top",),
    },
    "This machine": {
        "keys": ("login", "logout"),
        "settings": ("config",),
        "room": ("compact",),
        "metrics": ("metrics",),
        "doctor": ("doctor",),
        "care": ("verify", "rebuild"),
        "soak": ("soak",),
    },
}
"""Modules of `cli/`, with the verbs that each has in its VERBS."""

GROUPS: Final[dict[str, tuple[str, str]]] = {
    "keys": ("Server", "Who may call nodes of a store: make keys, list, revoke and rotate them; sign tokens."),
    "encryption": ("Volumes", "Volumes that no node can read: make keys, show who holds them, change that."),
}
"""Verbs with verbs of their own, which the module of that name has in its GROUP: their panel and help."""

MODULES: Final = {verb: module for modules in PANELS.values() for module, verbs in modules.items() for verb in verbs}

_WITH_VALUE: Final = ("--home", "--remote", "--token", "--cache-bytes")
"""What may stand before the verb with a value behind it."""

Body = Callable[..., None]


def body_of(verb: str) -> Body:
    body: Body = import_module(f".{MODULES[verb]}", __package__).VERBS[verb]
    return body


def group_of(name: str) -> dict[str, Body]:
    group: dict[str, Body] = import_module(f".{name}", __package__).GROUP
    return group


def named(arguments: Sequence[str]) -> str | None:
    """The verb or group that a command line names, if that is plain to see."""
    rest = iter(arguments)
    for each in rest:
        if not each.startswith("-"):
            return each if each in MODULES or each in GROUPS else None
        if each in _WITH_VALUE:
            next(rest, None)
        elif each.partition("=")[0] not in _WITH_VALUE:
            return None
    return None
