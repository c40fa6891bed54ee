"""Doctor: what of Budwood works on this machine, a line each, and what to do about the rest.

It makes nothing: no home, no store, no mount. What an installation may do without (FUSE, S3, a Java, Spark, a mount
that died) is said and is no failure. The exit status is 1 when something fails that every use needs, or that was asked
for: Spark by --spark, which starts a session, and a remote by --remote or BUDWOOD_REMOTE. With --store it looks at that
store alone, and at all that it does: some hundred requests, whose objects are deleted again.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlsplit

import typer

from ..volume.byte_sizes import bytes_of
from ..volume.errors import BudwoodError, NotFound
from .common_options import Context, Json, flag, option
from .exit_status import line_of, speaker
from .output import Column, count_of, write_json, write_table

_LEAST_FREE_BYTES: Final = 64 << 20
"""With less, commits soon fail."""


@dataclass(frozen=True, slots=True)
class Finding:
    check: str
    state: Literal["ok", "missing", "failed"]
    says: str
    needed: bool = False
    """A state other than ok makes the command fail."""
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    """For programs; numbers are plain."""


def doctor(
    context: Context,
    spark: Annotated[bool, flag("--spark", "Start a Spark session, to see whether it works.")] = False,
    store: Annotated[
        str | None, option("--store", "URL", "Try all that a store has to do; look at nothing else.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what works here, what is missing, and what to do about it."""
    findings = list(_findings(context, spark) if store is None else _store(store))
    if as_json:
        write_json([{"check": each.check, "state": each.state, "says": each.says, **each.facts} for each in findings])
    else:
        columns = [Column("check"), Column("state"), Column("says")]
        write_table(columns, [[each.check, each.state, each.says] for each in findings])
    if any(each.needed and each.state != "ok" for each in findings):
        raise typer.Exit(1)


VERBS: Final[dict[str, Callable[..., None]]] = {"doctor": doctor}


def _findings(context: Context, spark: bool) -> Iterator[Finding]:
    home = context.real_home()
    yield Finding("python", "ok", platform.python_version(), facts={"version": platform.python_version()})
    yield _safely("sqlite", _sqlite)
    yield _safely("lmdb", _lmdb)
    yield _safely("home", lambda: _home(home))
    yield from _mounts(home)
    yield _fuse()
    yield _s3()
    yield _java()
    yield _spark(spark)
    if context.remote:
        url, token = context.remote, context.token
        yield _safely("remote", lambda: _remote(url, token))
    else:
        yield Finding("remote", "ok", "none given: --remote URL checks one")


def _safely(check: str, look: Callable[[], Finding]) -> Finding:
    """What every use needs, or what was asked for: whatever it raises is the finding."""
    try:
        return look()
    except (BudwoodError, OSError, ImportError) as error:
        return Finding(check, "failed", _words(error), needed=True)


def _words(error: Exception) -> str:
    if isinstance(error, ImportError):
        return f"can't be loaded ({error}): pip install --force-reinstall budwood"
    return line_of(speaker(error))


def _sqlite() -> Finding:
    import apsw

    found = apsw.sqlite_lib_version()
    facts = {"version": found, "apsw": apsw.apsw_version()}
    return Finding("sqlite", "ok", f"{found}, by apsw {apsw.apsw_version()}", facts=facts)


def _lmdb() -> Finding:
    from ..sync.environment import lmdb_version

    found = lmdb_version()
    return Finding("lmdb", "ok", f"{found}, by py-lmdb {version('lmdb')}", facts={"version": found})


def _home(home: Path) -> Finding:
    standing = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(standing).free
    facts: dict[str, Any] = {"home": str(home), "free_bytes": free}
    if not os.access(standing, os.W_OK | os.X_OK):
        return Finding("home", "failed", f"{standing} may not be written by this user", needed=True, facts=facts)
    if free < _LEAST_FREE_BYTES:
        says = f"{home}: {bytes_of(free)} free: make room, or commits will fail"
        return Finding("home", "failed", says, needed=True, facts=facts)
    if not (home / "store" / "data.mdb").exists():
        says = f"{home}: not there yet, made when first used; {bytes_of(free)} free"
        return Finding("home", "ok", says, facts=facts)

    from ..sync.environment import open_environment

    with closing(open_environment(home)) as environment:
        with environment.view() as txn:
            names = int(txn.stat(environment.tables.names)["entries"])
        size, room = os.stat(environment.data_path).st_size, environment.map_bytes()
    facts |= {"volumes": names, "store_bytes": size, "map_bytes": room}
    says = f"{home}: {count_of(names, 'volume')}, {bytes_of(size)} of a map of {bytes_of(room)}; {bytes_of(free)} free"
    return Finding("home", "ok", says, facts=facts)


def _mounts(home: Path) -> Iterator[Finding]:
    """Those of the home."""
    from ..fuse.host.mount_client import mounts

    found = [each for each in mounts() if each.home == home]
    if not found:
        yield Finding("mount", "ok", "none of this home")
    for each in found:
        facts = {"dir": str(each.directory), "alive": each.alive, "pid": each.pid, "mode": each.mode}
        if each.stopped:
            says = f"the process behind {each.directory} is stopped, and answers nobody: kill -CONT {each.pid}"
            yield Finding("mount", "failed", says, facts=facts)
        elif each.alive:
            process = "" if each.pid is None else f", process {each.pid}"
            yield Finding("mount", "ok", f"{each.directory}, {each.mode}{process}", facts=facts)
        else:
            says = f"the process behind {each.directory} has died: budwood umount {each.directory}"
            yield Finding("mount", "failed", says, facts=facts)


def _fuse() -> Finding:
    from ..fuse.host.checks import check_machine

    try:
        check_machine()
        from ..fuse import mount as _loads  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except BudwoodError as error:
        return Finding("fuse", "missing", str(error))
    except ImportError as error:
        says = f"pyfuse3 can't be loaded ({error}): pip install --force-reinstall 'budwood[fuse]'"
        return Finding("fuse", "missing", says)
    found = version("pyfuse3")
    return Finding("fuse", "ok", f"pyfuse3 {found}", facts={"version": found})


def _s3() -> Finding:
    found: dict[str, Any] = {}
    for name in ("obstore", "botocore"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    if "obstore" not in found:
        says = "s3://, gs:// and az:// need obstore: pip install 'budwood[s3]'"
        return Finding("s3", "missing", says)
    if "botocore" not in found:
        says = f"obstore {found['obstore']}; what ~/.aws or a role says needs botocore: pip install 'budwood[s3]'"
        return Finding("s3", "missing", says, facts=found)
    return Finding("s3", "ok", ", ".join(f"{name} {each}" for name, each in found.items()), facts=found)


def _java() -> Finding:
    from ..spark_export.java import find

    try:
        java = find()
    except BudwoodError as error:
        return Finding("java", "missing", str(error))
    notes = [
        *([] if java.tested else ["Spark isn't tested with it"]),
        *([] if java.whole else ["started without the vector module, which it lacks"]),
        *java.passed_over,
    ]
    facts = {"version": java.version, "java_home": str(java.home), "source": java.source}
    return Finding("java", "ok", "; ".join([f"{java.version} from {java.source}", *notes]), facts=facts)


def _spark(start: bool) -> Finding:
    from ..spark_export.session import check_libraries, versions

    try:
        check_libraries()
    except BudwoodError as error:
        return Finding("spark", "missing", str(error), needed=start)
    facts: dict[str, Any] = versions()
    says = ", ".join(f"{name} {found}" for name, found in facts.items())
    if not start:
        return Finding("spark", "ok", f"{says}; not started: --spark tries", facts=facts)

    from ..spark_export.spark_check import run

    try:
        checked = run()
    except BudwoodError as error:
        return Finding("spark", "failed", str(error), needed=True, facts=facts)
    facts |= {"java": checked.java, "start_seconds": checked.start_seconds, "job_seconds": checked.job_seconds}
    session, job = f"{checked.start_seconds:.1f} s", f"{checked.job_seconds:.1f}"
    says += f"; a session on Java {checked.java} in {session}, its first job in {job}"
    return Finding("spark", "ok", says, needed=True, facts=facts)


def _store(url: str) -> Iterator[Finding]:
    try:
        from .store_check import check_store

        found = check_store(url)
    except ImportError as error:
        yield Finding("address", "failed", f"a store needs {error.name!r}: pip install 'budwood[server]'", needed=True)
        return
    for each in found:
        yield Finding(each.check, "ok" if each.good else "failed", each.says, needed=each.needed, facts=each.facts)


def _open_to_all(url: str) -> str:
    """The directory of a store that its owner doesn't have alone; "" for any other."""
    parts = urlsplit(url)
    if parts.scheme != "file" or not os.path.isdir(parts.path):
        return ""
    return parts.path if os.stat(parts.path).st_mode & 0o007 else ""


def _remote(url: str, token: str | None) -> Finding:
    from .remote_check import check_remote

    try:
        found = check_remote(url, token)
    except NotFound as error:
        return Finding("remote", "missing", f"{error}; the first push makes it", needed=True)
    facts = {"url": url, "store": found.store, "latency_ms": round(found.latency_ms, 3), "probed": found.probed}
    parts = [
        f"{url}: store {found.store}" if found.store else f"{url}: no store there yet, the first push makes it",
        *([f"by node {found.node}"] if found.node else []),
        f"{found.latency_ms:.1f} ms a request",
        *(["creates are honoured, lists in order"] if found.probed else []),
        *([f"every user of this machine may read it: chmod -R go= {wide}"] if (wide := _open_to_all(url)) else []),
    ]
    return Finding("remote", "ok", ", ".join(parts), needed=True, facts=facts)
