"""Iceberg's catalogs, each opened once in a process and kept: every call of every table asks one.

Of those in a database no connection is kept, so that nothing is held open between calls, nor handed down to a process
that is forked from this one.

Importing this needs pyiceberg.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar, cast

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NotInstalledError
from sqlalchemy import URL, NullPool, create_engine, inspect
from sqlalchemy.exc import SQLAlchemyError

from ...volume.errors import UsageError
from .files import failed, first_line, is_of_the_disk
from .s3_location import S3Location

CATALOG: Final = "budwood"
"""The name of a catalog that none was given."""

Made = TypeVar("Made")

_PATIENCE_SECONDS: Final = 60
_PASSWORD: Final = re.compile(r"(://[^/@]*:).*@")
_MAKING: Final = threading.Lock()
"""A catalog, its own tables, a namespace: looked for, and then made, by one at a time."""
_OPEN: Final[dict[str, Catalog]] = {}


def open_beside(file: Path) -> Catalog:
    """The catalog in a SQLite file, which is made if it isn't there. Raises UsageError."""
    # Not as text: there a ? in the path would end it.
    uri = URL.create("sqlite", database=str(file), query={"timeout": str(_PATIENCE_SECONDS)})

    def make() -> Catalog:
        file.parent.mkdir(parents=True, exist_ok=True)
        return _in_database(uri, S3Location())

    # Another file under the same name is another catalog.
    return _opened(f"{file} {file.stat().st_ino if file.exists() else 0}", str(file), make)


def open_named(name: str, location: S3Location) -> Catalog:
    """By the URL of its database, for tables at this location; or by the name under which pyiceberg is configured for
    it, and for all that it is to know. Raises UsageError.
    """
    # A password is nobody's to read in a message.
    shown = _PASSWORD.sub(r"\1***@", name)
    if "://" not in name:
        return _opened(name, shown, lambda: load_catalog(name))
    return _opened(f"{name} {location}", shown, lambda: _in_database(name, location))


def make_namespace(catalog: Catalog, namespace: tuple[str, ...]) -> None:
    with _MAKING:
        _twice(lambda: catalog.create_namespace_if_not_exists(namespace))


def _opened(key: str, name: str, make: Callable[[], Catalog]) -> Catalog:
    with _MAKING:
        found = _OPEN.get(key)
        if found is None:
            try:
                found = _twice(make)
            except (SQLAlchemyError, NotInstalledError, ImportError, OSError, ValueError) as error:
                what = f"the catalog {name} can't be opened"
                if is_of_the_disk(error):
                    raise failed(what, error) from error
                raise UsageError(f"{what}: {first_line(error)}") from error
            if not key.endswith(" 0"):
                _OPEN[key] = found
        return found


def _in_database(uri: str | URL, location: S3Location) -> SqlCatalog:
    engine = create_engine(uri, poolclass=NullPool)
    # What can't be read shows here: a SqlCatalog that fails to come about leaves connections open.
    inspect(engine).get_table_names()
    catalog = SqlCatalog(CATALOG, uri=cast("str", uri), **location.iceberg_properties())
    catalog.engine.dispose()
    catalog.engine = engine
    return catalog


def _twice(make: Callable[[], Made]) -> Made:
    """What another process may make at the same time: then it is there the second time."""
    try:
        return make()
    except SQLAlchemyError:
        return make()
