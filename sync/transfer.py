"""Transfer: whole files in and out, and whole volumes fetched. All of it streams.

An import is one commit of a new volume. SQLite looks the file through before (import_check.py), unless told not to. It
is read as it is, so nobody may write to it meanwhile: if it changed under the import, nothing is made. An export
appears under its name only when it is complete and flushed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from ..sqlite.btree import is_skeleton
from ..sqlite.header import Header, check_database_file
from ..volume.errors import AlreadyExists, BadInput, Busy, Full, StoreError, Unavailable, UsageError
from ..volume.page import zeros
from ..volume.pageset import PageSet, page_count, span
from ..volume.protocols import Snapshot
from .change import record_of
from .environment import Environment
from .import_check import quick_check
from .lmdb_errors import NO_ROOM
from .local_volume import Local
from .name_table import check_free
from .snapshot import LocalSnapshot
from .stage import batches
from .tables import NO_HEAD, CommitRecord, Head, VolumeRecord
from .volume_lifecycle import add_volume

Progress = Callable[[int, int], None]
"""Pages done, pages in all."""

Request = Callable[[Head, PageSet], Generator[dict[int, bytes]]]
"""Pages at the head's sync point, in parts."""

Say = Callable[[str], None]
"""Takes a line that the user should see."""

_CHUNK_BYTES: Final = 1024 * 1024
_ROUNDS: Final = 8
_HEAD_BYTES: Final = 100
_WRONG_PATH: Final = (
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.EINVAL,
)


def import_file(
    environment: Environment,
    path: Path,
    record: VolumeRecord,
    *,
    check: bool = True,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Local:
    """A new volume, by `record`, with the content of a SQLite file, which is checked before, if told. Raises BadInput,
    AlreadyExists, Full, Corrupt; then nothing was made.
    """
    check_free(environment, record.name)
    with _reading(path) as file:
        before = _signature(path, file)
        length = os.fstat(file.fileno()).st_size
        header = check_database_file(
            file.read(_HEAD_BYTES), length, wal_bytes=_size(path, "-wal"), journal_head=_start(path, "-journal")
        )
        hindrance = quick_check(path) if check else ""
        if hindrance and say is not None:
            say(hindrance)
        pages, skeleton = PageSet(), PageSet()

        def items() -> Iterator[tuple[int, bytes]]:
            for page, data in _file_pages(file, header, length):
                pages.add(page)
                if is_skeleton(data, page):
                    skeleton.add(page)
                if progress is not None and page % 1024 == 0:
                    progress(page, length // header.page_size)
                yield page, data
            if _signature(path, file) != before:
                raise BadInput(
                    f"{path} was written to while it was imported: close whatever writes to it, then try again"
                )

        def commit() -> CommitRecord:
            return record_of(pages, skeleton, length, floor=0)

        head = NO_HEAD._replace(lsn=1, length=length, page_size=header.page_size, unpushed=1)
        local = add_volume(environment, record, head, pages=batches(items(), header.page_size), commit=commit)
    if progress is not None:
        progress(length // header.page_size, length // header.page_size)
    if header.wal and say is not None:
        say(f"{path} is in WAL mode; the volume {record.name!r} is not: each connection settles its journal mode anew")
    return local


@contextmanager
def _reading(path: Path) -> Generator[IO[bytes]]:
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise _file_error(error, f"{path} can't be read") from error


def export_file(snapshot: Snapshot, path: Path, *, overwrite: bool = False, progress: Progress | None = None) -> None:
    """The snapshot's content as a file. Raises AlreadyExists unless told to overwrite, BadInput, Full."""
    temporary = ""
    try:
        _check_target(path, overwrite=overwrite)
        fd, temporary = _temporary(path)
        with open(fd, "wb") as file:
            _write_pages(snapshot, file, progress)
            file.flush()
            os.fsync(file.fileno())
        if overwrite:
            os.replace(temporary, path)
        else:
            os.link(temporary, path)
    except FileExistsError as error:
        raise AlreadyExists(f"{path} exists: take another path, or replace it with --overwrite") from error
    except OSError as error:
        raise _file_error(error, f"{path} can't be written") from error
    finally:
        if temporary:
            # What is wrong with the disk was told already, or made no difference to the file.
            with suppress(OSError):
                os.unlink(temporary)


def _check_target(path: Path, *, overwrite: bool) -> None:
    if not overwrite and os.path.lexists(path):
        raise FileExistsError
    if path.exists() and not path.is_file():
        # A device or pipe would be replaced, not written to.
        raise BadInput(f"{path} is no regular file: take another path")
    for suffix in ("-wal", "-journal"):
        if _size(path, suffix):
            raise BadInput(f"{path}{suffix} lies where the file is to be, and SQLite would apply it: remove it first")


def fetch_all(take: Callable[[], LocalSnapshot], request: Request, progress: Progress | None = None) -> int:
    """Every missing page of the current snapshot; how many there were. What was fetched before a failure stays."""
    fetched, name = 0, ""
    for _ in range(_ROUNDS):
        with closing(take()) as snapshot:
            # Nothing is held while the pages travel: LMDB could reuse nothing in the meantime.
            local, head = snapshot.local, snapshot.head
            missing = snapshot.missing(span(1, page_count(head.length, head.page_size))) if head.length else PageSet()
        name = local.name
        left = _keep(local, head, missing, request, fetched, progress)
        fetched += len(missing) - left
        if not left:
            return fetched
    raise Busy(f"volume {name!r} keeps moving while it is fetched: try again")


def fetch_some(
    take: Callable[[], LocalSnapshot],
    plan: Callable[[Head], PageSet],
    request: Request,
    progress: Progress | None = None,
) -> int:
    """Those pages of the current snapshot that `plan` names at its sync point and that are missing; how many there
    were.
    """
    with closing(take()) as snapshot:
        head = snapshot.head
    if not head.length or not head.sync_remote:
        return 0
    wanted = plan(head)
    with closing(take()) as snapshot:
        local = snapshot.local
        missing = snapshot.missing(wanted & span(1, page_count(head.length, head.page_size)))
    if _keep(local, head, missing, request, 0, progress):
        raise Busy(f"volume {local.name!r} was synced while pages of it were fetched: try again")
    return len(missing)


def _keep(local: Local, head: Head, missing: PageSet, request: Request, fetched: int, progress: Progress | None) -> int:
    """Request the missing pages and keep them; how many are left, since the sync point has moved. `fetched` were kept
    before."""
    left, total = missing, fetched + len(missing)
    if not missing:
        return 0
    with closing(request(head, missing)) as parts:
        for part in parts:
            if not local.save(head.sync_remote, part):
                break
            left = left - PageSet(part)
            if progress is not None:
                progress(total - len(left), total)
    return len(left)


def _file_pages(file: IO[bytes], header: Header, length: int) -> Iterator[tuple[int, bytes]]:
    """Every page that isn't zeros; page 1 as a rollback-mode database's."""
    size, nothing = header.page_size, zeros(header.page_size)
    file.seek(0)
    page = 0
    while chunk := file.read(_CHUNK_BYTES):
        for at in range(0, len(chunk), size):
            data = chunk[at : at + size]
            page += 1
            if len(data) < size or page * size > length:
                raise BadInput(
                    "the file was written to while it was imported: close whatever writes to it, then try again"
                )
            if page == 1 and header.wal:
                data = data[:18] + b"\1\1" + data[20:]
            if data != nothing:
                yield page, data


def _write_pages(snapshot: Snapshot, file: IO[bytes], progress: Progress | None) -> None:
    if snapshot.length == 0:
        return
    size = snapshot.page_size
    nothing, total = zeros(size), page_count(snapshot.length, size)
    for page in range(1, total + 1):
        data = snapshot.read(page)
        if data == nothing:
            file.seek(page * size)
        else:
            file.write(data)
        if progress is not None and page % 1024 == 0:
            progress(page, total)
    file.truncate(snapshot.length)
    if progress is not None:
        progress(total, total)


def _signature(path: Path, file: IO[bytes]) -> tuple[int, int, int, int]:
    status = os.fstat(file.fileno())
    return status.st_ino, status.st_size, status.st_mtime_ns, _size(path, "-wal")


def _size(path: Path, suffix: str) -> int:
    try:
        return os.stat(f"{path}{suffix}").st_size
    except FileNotFoundError:
        return 0


def _start(path: Path, suffix: str) -> bytes:
    try:
        with open(f"{path}{suffix}", "rb") as file:
            return file.read(1)
    except FileNotFoundError:
        return b""


def _temporary(path: Path) -> tuple[int, str]:
    """Beside `path`, for whom the umask says: the kernel applies it, as it can't be asked for without being changed."""
    name = str(path.parent / f".{path.name}.{os.urandom(8).hex()}")
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666), name


def _file_error(error: OSError, what: str) -> StoreError | UsageError:
    if error.errno in NO_ROOM:
        return Full(f"{what}: no room on the disk")
    if error.errno in _WRONG_PATH:
        return BadInput(f"{what}: {error.strerror}")
    return Unavailable(f"{what}: {error.strerror}")
