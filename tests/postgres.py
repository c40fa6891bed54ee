"""PostgreSQL as Debian packages it (`apt-get install postgresql`): a server of this run's own, in a folder of its own.

    with PostgresServer() as server:
        store = await open_store(f"memory://x?records={server.url('some_schema')}")

It listens on a socket in that folder and nowhere else. It never runs as root, and refuses to: there the user that the
package makes runs it, in a folder which that one can reach. Where it isn't installed tests of it are skipped, except
with CI_HAS_POSTGRES in the environment, where they fail.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import psycopg

from .waits import LIMIT_SECONDS, wait_until

_USER: Final = "postgres"


def programs() -> Path | None:
    """Where initdb and postgres are, of the newest version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """Between `__enter__` and `__exit__`."""

    def __init__(self, data: Path | None = None) -> None:
        """`data` is where its data lie, which then stay when it ends; by default within its folder."""
        found = programs()
        assert found is not None, "apt-get install postgresql"
        self._programs = found
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            user = pwd.getpwnam(_USER)
            self._as = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self._folder = Path(tempfile.mkdtemp(prefix="pg", dir=reachable() if self._as else None))
        self._data = data or self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._schemas: set[str] = set()

    def url(self, schema: str) -> str:
        """Of a schema, which is made where it is missing."""
        if schema not in self._schemas:
            with self.connect() as connection:
                connection.execute(f'CREATE SCHEMA "{schema}"'.encode())
            self._schemas.add(schema)
        return f"{self._base}&options={quote(f'-csearch_path={schema}', safe='')}"

    def connect(self) -> psycopg.Connection:
        """Each statement is a transaction, unless one is begun."""
        return psycopg.connect(self._base, autocommit=True)

    @property
    def _base(self) -> str:
        return f"postgresql:///postgres?host={self._folder}&user={_USER}"

    def start(self) -> None:
        settings = {
            "listen_addresses": "",
            "unix_socket_directories": str(self._folder),
            "shared_buffers": "16MB",
            "max_connections": "60",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen[bytes](
                [str(self._programs / "postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                **self._as,
            )
        wait_until(self._answers)

    def kill(self) -> None:
        """As a power loss would: the server and each process of it, by SIGKILL."""
        assert self._process is not None
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        self._process.kill()
        self._process.wait(LIMIT_SECONDS)
        for child in map(int, children):
            _kill(child)
        # Whoever starts it anew is refused as long as one of them has its memory.
        wait_until(lambda: not any(_is_alive(int(child)) for child in children))
        self._process = None

    def __enter__(self) -> Self:
        try:
            self._data.mkdir(exist_ok=True)
            for folder in (self._folder, self._data):
                os.chmod(folder, 0o700)
                if self._as:
                    os.chown(folder, self._as["user"], self._as["group"])
            initdb = [
                str(self._programs / "initdb"),
                "-D",
                str(self._data),
                "-U",
                _USER,
                "-A",
                "trust",
                "-E",
                "UTF8",
            ]
            subprocess.run(initdb, check=True, capture_output=True, cwd=self._folder, timeout=LIMIT_SECONDS, **self._as)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            # Sessions that are still open are cut.
            self._process.send_signal(signal.SIGINT)
            self._process.wait(LIMIT_SECONDS)
        shutil.rmtree(self._folder)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self.connect().close()
        except psycopg.OperationalError:
            return False
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def reachable() -> str:
    """A folder for temporary ones that any user can reach."""
    for folder in (tempfile.gettempdir(), "/var/tmp", "/tmp"):
        if all(path.stat().st_mode & 0o1 for path in (Path(folder), *Path(folder).parents)):
            return folder
    raise AssertionError("no folder for temporary ones can be reached by another user")
