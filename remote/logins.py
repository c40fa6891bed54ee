"""Logins: keys that are kept for remotes, so that nobody has to say them (`budwood login`).

    $BUDWOOD_LOGINS, else $XDG_CONFIG_HOME/budwood/logins.json, else ~/.config/budwood/logins.json

Each belongs to one origin (token.py). The file is its owner's alone: one that others may read is refused, since what is
in it may be everybody's by now.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from ..volume.errors import BadInput
from ..volume.user_paths import expanded, user_home

_NOBODY: Final = 0o077


def logins_path() -> Path | None:
    """None where the user has no folder of their own."""
    given = os.environ.get("BUDWOOD_LOGINS")
    if given:
        return expanded(given)
    folder, own = os.environ.get("XDG_CONFIG_HOME"), user_home()
    if folder:
        return Path(folder) / "budwood" / "logins.json"
    return None if own is None else own / ".config" / "budwood" / "logins.json"


def kept_for(origin: str) -> str:
    """The key that is kept for it; "" for none. Raises BadInput where the file is others' to read, or can't be."""
    return _read().get(origin, "") if origin else ""


def keep(origin: str, key: str) -> Path:
    """From now on; "" keeps none. Raises BadInput, OSError. Where it lies."""
    path, kept = logins_path(), _read()
    if path is None:
        raise BadInput("this user has no home directory to keep a key in: name a file with BUDWOOD_LOGINS")
    kept.pop(origin, None)
    if key:
        kept[origin] = key
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Made with no rights for others, and whole before it has its name.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".logins-")
    try:
        with open(handle, "w") as file:
            json.dump(kept, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return path


def _read() -> dict[str, str]:
    path = logins_path()
    if path is None:
        return {}
    try:
        with open(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_IMODE(mode) & _NOBODY:
                raise BadInput(f"{path} may be read by others: `chmod 600 {path}`, and rotate the keys in it")
            found: Any = json.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} can't be read ({error}): mend or remove it, and log in again") from error
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds something else than logins: remove it, and log in again")
    kept = cast("dict[str, object]", found)
    texts = {origin: key for origin, key in kept.items() if isinstance(key, str)}
    if len(texts) != len(kept):
        raise BadInput(f"{path} holds something else than logins: remove it, and log in again")
    return texts
