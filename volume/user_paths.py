"""User paths: the home directory of whoever runs this, and paths as people write them.

A process may have none: in a container, under a number that no account has.
"""

from __future__ import annotations

import os
from pathlib import Path

from .errors import BadInput


def user_home() -> Path | None:
    """None where there is none."""
    found = Path(os.path.expanduser("~"))
    return found if found.is_absolute() else None


def expanded(path: str | os.PathLike[str]) -> Path:
    """With the folder that a leading ~ or ~user stands for. Raises BadInput where it stands for none."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{path}: there is no home directory for the {Path(path).parts[0]}: write it out") from error


def default_home() -> Path:
    """Where a local store lies that nobody names: $BUDWOOD_HOME, else $XDG_DATA_HOME/budwood, else
    ~/.local/share/budwood. Raises BadInput where there is none of these."""
    chosen, data, own = os.environ.get("BUDWOOD_HOME"), os.environ.get("XDG_DATA_HOME"), user_home()
    if chosen:
        return expanded(chosen)
    if data:
        return Path(data) / "budwood"
    if own is None:
        raise BadInput("this user has no home directory: say with BUDWOOD_HOME, or a home, where the local store lies")
    return own / ".local" / "share" / "budwood"
