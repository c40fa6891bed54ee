"""The how-tos do what they say, on one machine: buckets are moto's, and nodes listen on loopback, with TLS."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

import budwood
from budwood.cli.main import run
from budwood.spark_export import session

from ..mounts import is_mounted, needs_fuse
from ..programs import path_with_sqlite3
from ..waits import LIMIT_SECONDS, wait_until
from .store_servers import served
from .test_spark_docs import let_it_run
from .test_tls import Authority

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGES: Final = Path(__file__).parents[2] / "docs" / "how-to"
SPARK: Final = ("spark-export", "readStream")
"""What begins a Spark, here that of all tests."""
BUDWOOD: Final = f'#!/bin/sh\nexec {sys.executable} -P -c "from budwood.cli.launch import main; main()" "$@"\n'
TOKEN: Final = "a-token-of-some-length"


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each, in their order."""
    return re.findall(r"^```(\w+)\n(.*?)^```", (PAGES / page).read_text(), re.MULTILINE | re.DOTALL)


def said_in_passing(page: str, verb: str) -> str:
    """The command of that verb that stands within a sentence."""
    (command,) = re.findall(rf"`(budwood {verb} [^`]*)`", (PAGES / page).read_text())
    return " ".join(str(command).split())


class Machine:
    """With the commands on its path, credentials of the bucket where AWS's tools have them, and a home of its own."""

    def __init__(self, folder: Path, endpoint: str) -> None:
        self.folder = folder
        folder.mkdir()
        programs = folder / "bin"
        self.environment = {
            "HOME": str(folder),
            "PATH": path_with_sqlite3(programs),
            "AWS_PROFILE": "fleet",
            "TOKEN": TOKEN,
            "SERIAL": "A1",
        }
        (programs / "budwood").write_text(BUDWOOD)
        (programs / "budwood").chmod(0o755)
        (folder / ".aws").mkdir()
        (folder / ".aws" / "config").write_text(f"[profile fleet]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
        keys = "aws_access_key_id = some\naws_secret_access_key = secret\n"
        (folder / ".aws" / "credentials").write_text(f"[fleet]\n{keys}")
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.node: subprocess.Popen[bytes] | None = None

    def vouched_for(self) -> Machine:
        """With a certificate for its node, and trust in whoever made it."""
        # It puts them where the how-tos name them.
        self.environment |= {"SSL_CERT_FILE": str(Authority(self.folder).vouches), "BUDWOOD_TOKEN": TOKEN}
        return self

    def _told(self, text: str) -> str:
        """Without what is installed, and with this machine's places."""
        text = re.sub(r"^(?:pip|apt-get) install .*\n", "", text, flags=re.MULTILINE)
        text = re.sub(r"https://\w+\.\w+\.example:7447", f"https://{self.address}", text)
        return text.replace("0.0.0.0:7447", self.address).replace("BUDWOOD_TOKEN=…", f"BUDWOOD_TOKEN={TOKEN}")

    def sh(self, text: str) -> str:
        """What it printed. A node that it begins stays, until `end`."""
        told, _, serve = self._told(text).partition("budwood serve ")
        serve, _, rest = serve.replace("\\\n", " ").partition("\n")
        said = self._ran(["bash", "-euc", told]) if told.strip() else ""
        if serve:
            with (self.folder / "node.log").open("wb") as log:
                command = ["bash", "-euc", f"exec budwood serve {serve}"]
                self.node = subprocess.Popen(command, cwd=self.folder, env=self.environment, stdout=log, stderr=log)
            wait_until(lambda: " at https://" in self._log() or self.node_ended())
            assert not self.node_ended(), self._log()
        return said + (self._ran(["bash", "-euc", rest]) if rest.strip() else "")

    def python(self, text: str) -> str:
        return self._ran([sys.executable, "-P", "-c", self._told(text)])

    def _ran(self, command: list[str]) -> str:
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), f"{command[-1]}{done.stdout}{done.stderr}"
        return done.stdout

    def status(self, name: str) -> dict[str, Any]:
        (row,) = json.loads(self.sh(f"budwood status {name} --json"))
        return dict(row)

    def node_ended(self) -> bool:
        return self.node is not None and self.node.poll() is not None

    def _log(self) -> str:
        return (self.folder / "node.log").read_text()

    def end(self) -> None:
        for name in ("team", "yesterday"):
            if is_mounted(self.folder / name):
                subprocess.run(["fusermount3", "-u", "-z", str(self.folder / name)], check=False)
        if self.node is not None:
            self.node.terminate()
            assert self.node.wait(LIMIT_SECONDS) == 0, self._log()


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served("moto", tmp_path_factory.mktemp("moto")) as bucket:
        endpoint = bucket.url.partition("endpoint=")[2]
        for name in ("fleet", "shop", "team"):
            httpx.put(f"{endpoint}/{name}").raise_for_status()
        yield endpoint


@pytest.fixture
def machine(tmp_path: Path, endpoint: str) -> Generator[Machine]:
    machine = Machine(tmp_path / "first", endpoint)
    yield machine
    machine.end()


def test_a_fleet_and_a_device_of_it(machine: Machine) -> None:
    page = "fleet-to-lake.md"
    machine.vouched_for()
    (_, serve), (_, settings), (_, device), *_ = blocks(page)
    assert "ok     honoured" in machine.sh(serve)
    machine.environment["BUDWOOD_REMOTE"] = f"https://{machine.address}"
    machine.sh(settings)
    until_pushed = (
        "import json, time\n"
        "while json.loads(db.execute('PRAGMA budwood_status').fetchall()[0][0])[0]['unpushed']:\n"
        "    time.sleep(0.1)\n"
    )
    machine.python(f"serial, temperature = 'A1', 21.5\n{device}{until_pushed}db.close()\n")
    assert machine.status("readings/A1")["lsn"] == "1"
    said = machine.sh(said_in_passing(page, "retain"))
    assert said == "readings/A1 keeps every LSN for 7d, one a day for 2y\n"


def test_the_lake_of_a_fleet(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In the session of all tests, with a store and a lake that lie in folders."""
    pytest.importorskip("deltalake")
    monkeypatch.setattr(session, "end", let_it_run)
    monkeypatch.setenv("BUDWOOD_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("BUDWOOD_REMOTE", remote := (tmp_path / "store").as_uri())
    export, stream = [text for _, text in blocks("fleet-to-lake.md") if any(word in text for word in SPARK)]
    (command,) = [line for line in export.splitlines() if line.startswith("budwood ")]
    for number, word in ((1, "written"), (2, "merged")):
        with closing(budwood.connect("readings/A1")) as db:
            db.execute("CREATE TABLE IF NOT EXISTS reading(at INTEGER, sensor TEXT, value REAL)")
            db.execute("INSERT INTO reading VALUES (?, 'inlet', 21.5)", (number,))
            db.execute("PRAGMA budwood_push").fetchall()
        capfd.readouterr()
        assert run(command.replace("s3://fleet/lake", str(tmp_path / "lake")).split()[1:]) == 0
        assert f"readings/A1  reading  {word}, verified" in capfd.readouterr().out
    known: dict[str, Any] = {"spark": spark, "serial": "A1"}
    exec(re.sub(r"https://[\w.]+:7447", remote, stream), known)
    to = known["changes"].writeStream.format("memory").queryName("fleet").trigger(availableNow=True)
    to.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    found = spark.sql("SELECT at, sensor, _change_type FROM fleet ORDER BY at").collect()
    assert [tuple(row) for row in found] == [(1, "inlet", "insert"), (2, "inlet", "insert")]


def test_a_function_on_s3(machine: Machine) -> None:
    page = "serverless-on-s3.md"
    (_, once), (_, handler) = blocks(page)
    assert "ok     honoured" in machine.sh(said_in_passing(page, "doctor"))
    assert "pushed 2 commits of stock: LSN 1" in machine.sh(once)
    calls = "".join(f"print(handler({{'item': {item!r}}}, None))\n" for item in ("bolt", "bolt", "nut"))
    assert machine.python(handler + calls) == "{'left': 39}\n{'left': 38}\n{'left': 0}\n"
    assert machine.python(handler + calls).startswith("{'left': 37}"), "COMMIT is the bucket's"
    assert "looked after 2 logs" in machine.sh(said_in_passing(page, "upkeep"))


def _plans(team: Path) -> set[str]:
    return {path.read_text() for path in team.glob("plan.txt*")}


@needs_fuse
def test_a_team_s_shared_folder(machine: Machine, tmp_path: Path, endpoint: str) -> None:
    page = "shared-folder.md"
    machine.vouched_for()
    (_, once), (_, mount) = blocks(page)
    assert "keep every LSN for 30d, one a day for 1y" in machine.sh(once)
    machine.sh(mount)
    url = f"https://{machine.address}"
    plan = machine.folder / "team" / "plan.txt"
    plan.write_text("one")
    machine.sh("sqlite3 ~/team/s.db 'CREATE TABLE t AS SELECT 1 AS a'")
    wait_until(lambda: [machine.status(name)["lsn"] for name in ("plan.txt", "s.db")] == ["1", "1"])
    machine.sh("budwood pin plan.txt --as yesterday --remote " + url)
    plan.write_text("two")
    wait_until(lambda: machine.status("plan.txt")["lsn"] == "2")

    other = Machine(tmp_path / "second", endpoint)
    other.address = machine.address
    other.environment |= {name: machine.environment[name] for name in ("SSL_CERT_FILE", "BUDWOOD_TOKEN")}
    try:
        other.sh(mount)
        assert (other.folder / "team" / "plan.txt").read_text() == "two"
        assert "fetched" in other.sh(said_in_passing(page, "fetch"))
        for each, text in ((machine, "two here"), (other, "two there")):
            (each.folder / "team" / "plan.txt").write_text(text)
        teams = [each.folder / "team" for each in (machine, other)]
        wait_until(lambda: all(_plans(team) == {"two here", "two there"} for team in teams))
        wait_until(lambda: len({(team / "plan.txt").read_text() for team in teams}) == 1)
        other.sh("budwood umount ~/team")
    finally:
        other.end()

    (machine.folder / "yesterday").mkdir()
    then = said_in_passing(page, "mount").replace("2026-01-31T18:00", "@yesterday").replace("…", url)
    machine.sh(then)
    assert (machine.folder / "yesterday" / "plan.txt").read_text() == "one"
    assert plan.read_text().startswith("two")
    machine.sh(said_in_passing(page, "restore").replace("FILE", "plan.txt").replace("…", "@yesterday"))
    wait_until(lambda: plan.read_text() == "one")
    assert "no volume is left over" in machine.sh(said_in_passing(page, "orphans"))
    machine.sh("budwood umount ~/yesterday; budwood umount ~/team --push")
