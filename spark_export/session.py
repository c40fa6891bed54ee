"""Session: Spark on this machine, started quietly and for this process alone.

For the command, the tests and whoever has no cluster: any other session will do as well, once `java.prepare` has found
it a Java. Nothing listens but on the loopback interface, and no web page is served. pyspark is loaded when a session is
asked for.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from ..volume.errors import UsageError
from . import java
from .python import name_to_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIBRARIES: Final = ("pyspark", "pyarrow", "numpy")
OLDEST: Final = [4, 3]
"""The first pyspark whose sources in Python are told of a limit and of AvailableNow as streams want it."""
_END_SECONDS: Final = 60.0
_LOOPBACK: Final = "127.0.0.1"
_ADDRESSES: Final = ("SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # By its own name a machine may be reached by nobody, itself included.
    "spark.driver.host": _LOOPBACK,
    "spark.driver.bindAddress": _LOOPBACK,
    # What is compared is instants; a time zone is for those who print them.
    "spark.sql.session.timeZone": "UTC",
}


def check_libraries() -> None:
    """Raises UsageError where something of the extra `spark` is missing or too old; loads none of it."""
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise UsageError(f"Spark needs {' and '.join(missing)}: pip install 'budwood[spark]'")
    found = versions().get("pyspark", "")
    if [int(part) for part in re.findall(r"\d+", found)[:2]] < OLDEST:
        raise UsageError(f"pyspark {found} is too old: pip install --upgrade 'budwood[spark]'")


def versions() -> dict[str, str]:
    """Of what is installed, by name."""
    found: dict[str, str] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def start(name: str, *, master: str = "local[*]", settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session of that name, which its caller stops; some seconds. A process has one: where one runs already, that is
    the one.

    Raises UsageError if a library or a Java is missing.
    """
    check_libraries()
    java.prepare()
    name_to_java()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    with _reached_by_itself(master), _ended_unless_started():
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextmanager
def _reached_by_itself(master: str) -> Generator[None]:
    """As it starts, Java looks up the address of the machine's own name, and ends where nobody knows that name; unless
    it is told an address. For a session of this machine alone that is the loopback interface's."""
    named = not master.startswith("local") or any(os.environ.get(name) for name in _ADDRESSES)
    if not named:
        os.environ[_ADDRESSES[0]] = _LOOPBACK
    try:
        yield
    finally:
        # A session on a cluster, later in this process, has another address.
        if not named:
            del os.environ[_ADDRESSES[0]]


@contextmanager
def _ended_unless_started() -> Generator[None]:
    """End a Java that no session came of. pyspark forgets one that it waits for when it is interrupted, and removes the
    directory that this was to write its port to: then it fails at that, stays, and holds what it was given."""
    import pyspark.java_gateway as gateways
    from pyspark import SparkContext

    if _inner(SparkContext, "_gateway") is not None:
        yield
        return
    started: list[subprocess.Popen[bytes]] = []

    class Recorded(subprocess.Popen[bytes]):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            started.append(self)

    module: Any = gateways
    before, module.Popen = module.Popen, Recorded
    try:
        yield
    except BaseException:
        SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]
        for process in started:
            process.kill()
            process.wait(_END_SECONDS)
        raise
    finally:
        module.Popen = before


def end(session: SparkSession) -> None:
    """Stop it, and end its Java, which would else go when this process does; the next `start` starts another."""
    from pyspark import SparkContext

    gateway = _inner(SparkContext, "_gateway")
    session.stop()
    if gateway is None:
        return
    gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # pyright: ignore[reportPrivateUsage]
    # It ends when the pipe to it does.
    gateway.proc.stdin.close()
    gateway.proc.wait(_END_SECONDS)


def java_of(session: SparkSession) -> str:
    """The version of the Java that it runs on."""
    return str(_inner(session.sparkContext, "_jvm").System.getProperty("java.version"))


def _inner(owner: object, name: str) -> Any:
    """What pyspark keeps to itself and has no types for: its gateway to Java."""
    return getattr(owner, name)
