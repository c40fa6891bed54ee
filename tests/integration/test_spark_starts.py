"""Spark on machines that aren't set up for it: one that doesn't know its own name, one whose python3 is another."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import budwood
from budwood.spark_export import java, python

from ..spark_session import why_not
from ..waits import LIMIT_SECONDS

UNKNOWN = "nobody-knows-this-name"

READ = """
rows = spark.read.format("budwood").options(remote=REMOTE, volume="v", table="t").load().collect()
assert [row["a"] for row in rows] == [1, 2, 3], rows
print("read")
"""
SETTINGS = '.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")'
OWN_SESSION = f"spark = SparkSession.builder{SETTINGS}.getOrCreate()\n"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("starts")
    url = (folder / "store").as_uri()
    with closing(budwood.connect("v", home=folder / "home", remote=url)) as db:
        db.execute("CREATE TABLE t (a INT); INSERT INTO t VALUES (1), (2), (3); PRAGMA budwood_push")
    return url


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One in which nobody has chosen a Python, and the first python3 on the PATH is none."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "python3").write_text("#!/bin/sh\necho this is another python3 >&2\nexit 9\n")
    (wrong / "python3").chmod(0o755)
    chosen = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP", "SPARK_LOCAL_HOSTNAME")
    found = {name: value for name, value in os.environ.items() if name not in chosen}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", os.environ.get("JAVA_HOME", ""))
        java.prepare()
        found["JAVA_HOME"] = os.environ["JAVA_HOME"]
    return found | {"PATH": f"{wrong}:{os.environ['PATH']}", "PYTHONSAFEPATH": "1"}


def run(program: str, environment: dict[str, str], *before: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-P", "-c", program],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def namespace() -> list[str]:
    """What to put before a command so that it runs on a machine whose own name nobody knows; empty where it can't."""
    before = ["unshare", "--uts", "sh", "-c", f'hostname {UNKNOWN} && exec "$@"', "sh"]
    if shutil.which("unshare") is None or shutil.which("hostname") is None:
        return []
    tried = subprocess.run([*before, "hostname"], capture_output=True, text=True, check=False)
    return before if tried.stdout.strip() == UNKNOWN else []


def test_a_session_starts_where_nobody_knows_the_machines_own_name(remote: str, environment: dict[str, str]) -> None:
    before = namespace()
    if not before:
        pytest.skip("a machine of another name can't be made here: that needs root, unshare and hostname")
    program = f"""
import os, socket
REMOTE = {remote!r}
try:
    socket.getaddrinfo(socket.gethostname(), None)
except OSError:
    print("unknown")
from budwood.spark_export import session
spark = session.start("starts", master="local[1]")
assert "SPARK_LOCAL_IP" not in os.environ
{READ}
session.end(spark)
"""
    said = run(program, environment, *before)
    if "unknown" not in said:
        pytest.skip("here every name is known")
    assert "read" in said


@pytest.mark.parametrize(
    "begin",
    [
        "import budwood.spark_export\n" + OWN_SESSION,
        # And then registered, as one may who doesn't know that it is.
        f"{OWN_SESSION}import budwood.spark_export\n{READ}budwood.spark_export.register(spark)\n",
    ],
    ids=["imported before", "imported after"],
)
def test_workers_are_this_python_whatever_python3_is(remote: str, environment: dict[str, str], begin: str) -> None:
    program = f"from pyspark.sql import SparkSession\nREMOTE = {remote!r}\n{begin}{READ}spark.stop()\n"
    # A session of one's own has to be told an address where nobody knows the machine's name.
    assert "read" in run(program, environment | {"SPARK_LOCAL_IP": "127.0.0.1"})


def test_a_java_that_is_interrupted_as_it_starts_is_ended(environment: dict[str, str]) -> None:
    """Nobody was left who knew of it: it stayed for ever, where its first thread had died."""
    program = """
import os
import time
import pyspark.java_gateway
from budwood.spark_export import session

class Interrupted:
    def sleep(self, seconds):
        time.sleep(seconds)
        raise KeyboardInterrupt

pyspark.java_gateway.time = Interrupted()
try:
    session.start("interrupted", master="local[1]")
except KeyboardInterrupt:
    pass
try:
    print("left:", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("none is left")
pyspark.java_gateway.time = time
again = session.start("again", master="local[1]")
print(again.range(3).count())
session.end(again)
"""
    assert run(program, environment).split("\n")[:2] == ["none is left", "3"]


def test_a_python_that_somebody_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Context:
        def __init__(self, master: str) -> None:
            self.master, self.pythonExec = master, "python3"

    class Session:
        def __init__(self, master: str) -> None:
            self.sparkContext = Context(master)

    class Connected:
        @property
        def sparkContext(self) -> object:  # noqa: N802 - Spark's name
            raise AttributeError("sparkContext")

    def named(master: str) -> str:
        session = Session(master)
        python.name_to_session(session)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        return session.sparkContext.pythonExec

    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.setenv(name, "")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert (named("local[*]"), named("spark://cluster:7077")) == (sys.executable, "python3")
    python.name_to_session(Connected())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.setenv(name, "/chosen/python")
        python.name_to_java()
        assert named("local[*]") == "python3"
        assert os.environ["PYSPARK_PYTHON"] in ("", "/chosen/python")
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1234")
    python.name_to_java()
    assert os.environ["PYSPARK_PYTHON"] == ""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "")
    python.name_to_java()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
