"""Files: folders given by URL, as pyarrow.fs reaches them: file://, s3:// and what else it knows.

What is made durable, and how: a small file (`put`) appears whole or not at all; on a local file system it and its name
are flushed to the disk, and a Parquet file likewise once it is closed (`make_durable`). An object store does both by
itself.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

from ...volume.errors import BadInput, BudwoodError, Corrupt, Full, StoreError, Unavailable
from .s3_location import arrow_query, is_s3

_NO_ROOM: Final = ("No space left", "errno 28", "Disk quota", "disk is full")
_BROKEN: Final = ("Input/output error", "disk I/O error")


def locate(url: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a URL, and the path within it. Raises BadInput for one that is none, Unavailable."""
    parts = urlsplit(url)
    if not parts.scheme:
        raise BadInput(f"{url!r} is no URL: give file:///dir or s3://bucket/prefix")
    scheme, query = ("s3", arrow_query(url)) if is_s3(url) else (parts.scheme, parts.query)
    try:
        system, root = _system(scheme, parts.netloc, query)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadInput(f"{url!r} is no folder to export to: give a path, file:///dir or s3://bucket/prefix") from error
    except OSError as error:
        raise Unavailable(f"{url} can't be reached: {error}") from error
    return system, f"{root.rstrip('/')}/{unquote(parts.path).strip('/')}".rstrip("/")


@lru_cache(maxsize=64)
def _system(scheme: str, netloc: str, query: str) -> tuple[pafs.FileSystem, str]:
    """Made once: finding out where a bucket lies takes a request."""
    return pafs.FileSystem.from_uri(urlunsplit((scheme, netloc, "/", query, "")))


def join(url: str, *names: str) -> str:
    """The URL of what lies under a folder; names are taken as they are, so that "%" in one is a "%"."""
    parts = urlsplit(url)
    path = "/".join([parts.path.rstrip("/"), *(quote(name) for name in names)])
    return urlunsplit(parts._replace(path=path))


def within(folder: str, url: str) -> str:
    """The path of what lies in a folder, below it, as the URL writes it."""
    above, path = urlsplit(folder).path.rstrip("/"), urlsplit(url).path
    assert path.startswith(f"{above}/"), "a data file lies in the table's folder"
    return path[len(above) + 1 :]


def name_of(url: str) -> str:
    """What a file is called in its folder; of a path as well."""
    return posixpath.basename(urlsplit(url).path)


def is_local(url: str) -> bool:
    return urlsplit(url).scheme == "file"


def local_path(url: str) -> Path | None:
    """Where a folder lies, if it lies on a file system of this machine."""
    return Path(locate(url)[1]) if is_local(url) else None


def put(url: str, data: bytes) -> None:
    """A small file with these bytes, in place of what stood there; whole or not at all, and durable."""
    with file_errors(url):
        if is_local(url):
            path = Path(locate(url)[1])
            path.parent.mkdir(parents=True, exist_ok=True)
            beside = path.with_name(f"{path.name}.new")
            beside.write_bytes(data)
            _flush(beside)
            beside.replace(path)
            _flush(path.parent)
        else:
            system, where = locate(url)
            with system.open_output_stream(where) as stream:
                stream.write(data)


def get(url: str) -> bytes | None:
    """What a small file holds; None if there is none."""
    system, path = locate(url)
    with file_errors(url):
        if system.get_file_info(path).type != pafs.FileType.File:
            return None
        with system.open_input_stream(path) as stream:
            return bytes(stream.read())


def names_in(url: str) -> dict[str, pafs.FileInfo]:
    """What lies in a folder, by name; nothing if there is no folder."""
    system, path = locate(url)
    with file_errors(url):
        found: list[pafs.FileInfo] = system.get_file_info(pafs.FileSelector(path, allow_not_found=True))
    return {info.base_name: info for info in found}


def remove(url: str) -> None:
    """A file or a whole folder; harmless if there is none."""
    system, path = locate(url)
    with file_errors(url), suppress(FileNotFoundError):
        if system.get_file_info(path).type == pafs.FileType.Directory:
            system.delete_dir(path)
        else:
            system.delete_file(path)


def make_durable(url: str) -> None:
    """Make a file that was closed, or the names in a folder, durable. Raises Full, Unavailable."""
    if is_local(url):
        with file_errors(url):
            _flush(Path(locate(url)[1]))


@contextmanager
def file_errors(url: str) -> Generator[None]:
    """What a file system says, as an error of ours that names the place."""
    try:
        yield
    except BudwoodError:
        raise
    except OSError as error:
        raise failed(f"{url} can't be read or written", error) from error


def failed(what: str, error: Exception) -> StoreError:
    """What a library of others, or the system, says of a place, on one line. `what` says what can't be done."""
    words = first_line(error)
    if any(sign in words for sign in _NO_ROOM):
        return Full(f"{what}, since no room is left: make room, then run the export again")
    return Unavailable(f"{what}: {words}")


def first_line(error: Exception) -> str:
    """Of what it says; SQL and traces come behind that."""
    return next(iter(str(error).splitlines()), type(error).__name__)


def is_of_the_disk(error: Exception) -> bool:
    """Whether a disk is full, or broken, and nobody asked for what can't be."""
    return any(sign in str(error) for sign in (*_NO_ROOM, *_BROKEN))


@contextmanager
def reading(what: str, instead: str) -> Generator[None]:
    """What a library of others says of data files that it can't make sense of, as Corrupt, with what to do instead.
    What the system says of the place is told as everywhere."""
    try:
        yield
    except (BudwoodError, MemoryError):
        raise
    except Exception as error:  # Each library has its own, down to plain Exception.
        if isinstance(error, OSError) and error.errno is not None:
            with file_errors(what):
                raise
        raise Corrupt(what, f"it can't be read ({first_line(error)}): {instead}") from error


def _flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
