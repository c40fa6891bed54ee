"""Settings: what budwood.toml and the environment say where the command line says nothing; `budwood config` shows it.

    remote = "https://db.example"       # BUDWOOD_REMOTE, --remote; so are home, token and cache_bytes
    key_file = "~/fleet.key"            # BUDWOOD_KEY_FILE; so is passphrase_file
    [serve]
    listen = "127.0.0.1:7447"           # BUDWOOD_SERVE_LISTEN, serve --listen; and so on, each option of the verb

A flag goes before a variable, a variable before the file, and the file before what is done unless told. The file is
$BUDWOOD_CONFIG, else $XDG_CONFIG_HOME/budwood/budwood.toml; none of the folder that a command runs in, which may be
anybody's and would say where a token goes. Only verbs that run for long have a table (VERBS_WITH_SETTINGS): what a verb
deletes is said where it is called.

Where neither has a table, no verb is parsed twice. Raises Call, which names the file or the variable.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, cast

import typer

from ..volume.user_paths import expanded
from .common_options import Context, Json, verb
from .exit_status import Call
from .output import Column, write_json, write_table
from .verbs import body_of

Kind = Literal["flag", "number", "list", "text"]

PLACE: Final = ("home", "remote", "token", "cache_bytes")
KEYS: Final = ("key_file", "passphrase_file", "encrypt_names")
"""Of encryption: no option names them, so that what starts others hands them on (remote/keyring.py)."""
VERBS_WITH_SETTINGS: Final = ("serve", "upkeep", "mount", "autosync")
_ACTS: Final = ("takeover", "once", "who", "volume", "mode", "foreground", "quiet", "lsn", "at", "help")
"""Options that say what one call does; in a file they would say it of every call."""
_SWITCH: Final = {"1": True, "true": True, "yes": True, "on": True} | dict.fromkeys(("0", "false", "no", "off"), False)
_WANTED: Final[dict[Kind, str]] = {
    "flag": "true or false",
    "number": "a whole number",
    "list": "a list of texts",
    "text": "a text in quotes",
}


@dataclass(frozen=True, slots=True)
class Setting:
    value: Any
    source: str
    """The variable, or the file."""


@dataclass(slots=True)
class Settings:
    """What the file and the environment say, by `home` or `serve.listen`."""

    file: Path
    found: dict[str, Setting] = field(default_factory=dict[str, Setting])
    place_of_file: dict[str, str] = field(default_factory=dict[str, str])
    """What the file says of PLACE, variables or not: its token belongs to its remote."""
    known: dict[str, dict[str, Option]] = field(default_factory=dict[str, "dict[str, Option]"])
    """Of the verbs whose options were needed."""

    def place(self) -> Context:
        """A token that stands in the file goes to the remote that stands there, like any that stands further out."""
        home, remote, token, cache_bytes = map(self.place_of_file.get, PLACE)
        below = Context(expanded(home) if home else None, remote, token, cache_bytes)
        return Context.from_environment().over(below)

    def hand_keys_on(self) -> None:
        """To this process and those that it starts, unless the environment names others."""
        for name in KEYS:
            if name in self.found:
                os.environ.setdefault(f"BUDWOOD_{name.upper()}", self.found[name].value)

    def defaults(self) -> dict[str, Any]:
        """As the parser takes it: a dict for each verb."""
        verbs: dict[str, Any] = {}
        for key, each in self.found.items():
            name, dot, option = key.partition(".")
            if dot:
                verbs.setdefault(name, {})[option] = each.value
        return verbs


@dataclass(frozen=True, slots=True)
class Option:
    kind: Kind
    default: str


def file_of(environment: Mapping[str, str]) -> Path:
    chosen = environment.get("BUDWOOD_CONFIG")
    if chosen:
        return expanded(chosen)
    configuration = environment.get("XDG_CONFIG_HOME")
    file = Path(configuration or os.path.expanduser("~/.config")) / "budwood" / "budwood.toml"
    # Who has no folder of their own has no file.
    return file if file.is_absolute() else Path(os.devnull)


def read() -> Settings:
    """Raises Call for what can't be read or isn't known."""
    settings = Settings(file_of(os.environ))
    written = _written(settings.file, needed=bool(os.environ.get("BUDWOOD_CONFIG")))
    told = _told()
    for name in VERBS_WITH_SETTINGS:
        if name in written or told.get(name):
            settings.known[name] = options_of(name, body_of(name))
    _take_file(settings, written)
    for name in (*PLACE, *KEYS):
        if value := os.environ.get(variable := f"BUDWOOD_{name.upper()}"):
            settings.found[name] = Setting(value, variable)
    for name, variables in told.items():
        for variable, text in variables.items():
            option = variable.removeprefix(f"BUDWOOD_{name.upper()}_").lower()
            if option not in settings.known[name]:
                prefixed = [f"BUDWOOD_{name.upper()}_{each.upper()}" for each in settings.known[name]]
                raise Call(f"{variable} is no setting{_nearest(variable, prefixed)}")
            known = settings.known[name][option]
            value = _checked(_from_text(known.kind, text), known, variable)
            settings.found[f"{name}.{option}"] = Setting(value, variable)
    return settings


def _written(file: Path, *, needed: bool) -> dict[str, Any]:
    try:
        text = file.read_bytes()
    except FileNotFoundError:
        if needed:
            raise Call(f"BUDWOOD_CONFIG names {file}, which isn't there") from None
        return {}
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Call(f"{file} is no TOML: {error}") from None


def _told() -> dict[str, dict[str, str]]:
    """The variables of each verb; an empty one counts as none."""
    told: dict[str, dict[str, str]] = {}
    for name in VERBS_WITH_SETTINGS:
        prefix = f"BUDWOOD_{name.upper()}_"
        told[name] = {each: text for each, text in os.environ.items() if each.startswith(prefix) and text}
    return told


def options_of(name: str, body: Callable[..., None]) -> dict[str, Option]:
    """The options of a verb that a file may set, by their names without the dashes and with `_` inside."""
    app = typer.Typer(add_completion=False)
    app.command(name)(verb(body))
    command: Any = typer.main.get_command(app)
    found: dict[str, Option] = {}
    for each in command.params:
        if each.param_type_name == "option" and not each.hidden and each.name not in (*PLACE, *_ACTS):
            kind: Kind = "flag" if each.is_flag else "list" if each.multiple else "text"
            if kind == "text" and "int" in each.type.name:
                kind = "number"
            shown = each.show_default if isinstance(each.show_default, str) else each.default
            default = str(shown).lower() if isinstance(shown, bool) else str(shown or "")
            found[each.name] = Option(kind, default)
    return found


def _take_file(settings: Settings, written: dict[str, Any]) -> None:
    for key, value in written.items():
        if key in PLACE:
            text = _checked(value, Option("text", ""), f"{settings.file}: {key}")
            settings.found[key] = Setting(text, str(settings.file))
            settings.place_of_file[key] = text
        elif key in KEYS:
            text = _checked(value, Option("text", ""), f"{settings.file}: {key}")
            settings.found[key] = Setting(text, str(settings.file))
        elif key not in VERBS_WITH_SETTINGS:
            raise Call(f"{settings.file}: {key!r} is no setting{_nearest(key, [*PLACE, *KEYS, *VERBS_WITH_SETTINGS])}")
        elif not isinstance(value, dict):
            raise Call(f"{settings.file}: {key!r} is a table: write its settings below [{key}]")
        else:
            _take_table(settings, key, value)  # pyright: ignore[reportUnknownArgumentType]


def _take_table(settings: Settings, name: str, table: dict[str, Any]) -> None:
    for key, value in table.items():
        where = f"{settings.file}: [{name}] {key}"
        if key not in settings.known[name]:
            raise Call(f"{where} is no setting{_nearest(key, settings.known[name])}")
        settings.found[f"{name}.{key}"] = Setting(_checked(value, settings.known[name][key], where), str(settings.file))


def _from_text(kind: Kind, text: str) -> Any:
    """As a file would have it; what can't be is left as it is, for `_checked` to refuse."""
    if kind == "flag":
        return _SWITCH.get(text.lower(), text)
    if kind == "number":
        return int(text) if text.isascii() and text.isdecimal() else text
    return text.split() if kind == "list" else text


def _checked(value: object, option: Option, where: str) -> Any:
    """`value`, if it is of the option's kind. Raises Call."""
    fits: dict[Kind, bool] = {
        "flag": isinstance(value, bool),
        "number": isinstance(value, int) and not isinstance(value, bool),
        "list": isinstance(value, list) and all(isinstance(each, str) for each in cast("list[object]", value)),
        "text": isinstance(value, str),
    }
    if not fits[option.kind]:
        raise Call(f"{where} takes {_WANTED[option.kind]}")
    return cast("Any", value)


def _nearest(name: str, known: Mapping[str, object] | list[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f": did you mean {near[0]}?" if near else f"; there are {', '.join(known)}"


def config(context: Context, as_json: Json = False) -> None:
    """Print the settings in force, and where each comes from: a flag, a variable, the file, or nobody."""
    settings = read()
    rows = [_of_place(name, context, settings) for name in PLACE]
    for name in KEYS:
        found = settings.found.get(name) or Setting("", "default")
        rows.append({"setting": name, "value": found.value, "from": found.source})
    for name in VERBS_WITH_SETTINGS:
        for option, about in options_of(name, body_of(name)).items():
            key = f"{name}.{option}"
            each = settings.found.get(key) or Setting(about.default, "default")
            rows.append({"setting": key, "value": each.value, "from": each.source})
    if as_json:
        write_json(rows)
    else:
        columns = [Column("SETTING"), Column("VALUE"), Column("FROM")]
        write_table(columns, [[str(row["setting"]), _shown(row["value"]), str(row["from"])] for row in rows])


def _of_place(name: str, context: Context, settings: Settings) -> dict[str, object]:
    """The token itself is nobody's to read over a shoulder."""
    value = context.real_home() if name == "home" else getattr(context, name)
    found = settings.found.get(name)
    source = f"--{name.replace('_', '-')}" if name in context.flags else found.source if found and value else "default"
    return {"setting": name, "value": ("(set)" if name == "token" else str(value)) if value else "", "from": source}


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


VERBS: Final[dict[str, Callable[..., None]]] = {"config": config}
