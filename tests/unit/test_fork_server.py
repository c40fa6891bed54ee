"""Children that are forked from a loaded process are a test's own, and end as any other does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .. import fork_server

ABOUT = """
import json, os, sys
print(json.dumps({
    "parent": os.getppid(), "arguments": sys.argv, "folder": os.getcwd(), "variable": os.environ.get("IN_A_CHILD"),
    "name": __name__, "read": sys.stdin.read(), "loaded": "budwood.server.http.run_node" in sys.modules,
    "session": os.getsid(0) == os.getpid(), "files": sorted(os.listdir("/proc/self/fd"), key=int)[:-1],
}))
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere subprocess makes the children")


def python(source: str, *arguments: str) -> list[str]:
    return [sys.executable, "-P", "-c", source, *arguments]


def about(*command: str, **options: Any) -> dict[str, object]:
    done = fork_server.run(command, input="told", **options)
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_a_child_is_a_child_of_this_process_with_the_streams_and_settings_that_it_was_given(tmp_path: Path) -> None:
    found = about(
        *python(ABOUT, "one", "two words"), cwd=tmp_path, env={**os.environ, "IN_A_CHILD": "ü"}, start_new_session=True
    )
    assert found == {
        "parent": os.getpid(),
        "arguments": ["-c", "one", "two words"],
        "folder": str(tmp_path),
        "variable": "ü",
        "name": "__main__",
        "read": "told",
        "loaded": True,
        "session": True,
        "files": ["0", "1", "2"],
    }


def test_a_file_is_run_as_the_interpreter_runs_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(ABOUT)
    found = about(sys.executable, "-P", str(program), "one")
    assert (found["arguments"], found["loaded"]) == ([str(program), "one"], True)


@pytest.mark.parametrize(
    "command",
    [
        [sys.executable, "-P", "-W", "error", "-c", ABOUT],
        [sys.executable, "-c", ABOUT],
        python(ABOUT, *["x" * (fork_server.MOST_BYTES // 2)] * 2),
    ],
)
def test_what_the_server_cant_do_is_done_by_subprocess(command: list[str]) -> None:
    found = about(*command)
    assert (found["parent"], found["loaded"]) == (os.getpid(), False)


def test_settings_of_pythons_own_need_an_interpreter_of_their_own() -> None:
    assert not about(*python(ABOUT), env={**os.environ, "PYTHONUTF8": "1"})["loaded"]


@pytest.mark.parametrize(
    ("source", "status", "said"),
    [
        ("pass", 0, ""),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('a word')", 1, "a word\n"),
        ("import atexit; atexit.register(print, 'last'); raise SystemExit", 0, ""),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
    ],
)
def test_it_ends_as_any_other(source: str, status: int, said: str) -> None:
    done = fork_server.run(python(source))
    assert (done.returncode, done.stderr) == (status, said)
    assert done.stdout == ("last\n" if "last" in source else "")


def test_what_nothing_catches_is_told_with_its_traceback_and_an_interrupt_interrupts() -> None:
    done = fork_server.run(python("raise ValueError('of its own')"))
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: of its own\n")
    done = fork_server.run(python("import os, signal; os.kill(os.getpid(), signal.SIGINT)"))
    assert done.returncode == -signal.SIGINT
    assert done.stderr.endswith("KeyboardInterrupt\n")


def test_it_is_stopped_goes_on_and_is_waited_for_by_its_number() -> None:
    with fork_server.Popen(python("input()"), stdin=subprocess.PIPE, text=True) as child:
        child.send_signal(signal.SIGSTOP)
        stopped = os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        assert stopped is not None
        assert stopped.si_code == os.CLD_STOPPED
        assert child.poll() is None
        child.send_signal(signal.SIGCONT)
        child.communicate("\n")
        assert child.returncode == 0


def test_one_child_knows_nothing_of_another() -> None:
    source = "import budwood.volume.faults as faults; print(hasattr(faults, 'changed')); faults.changed = True"
    assert [fork_server.run(python(source)).stdout for _ in range(2)] == ["False\n"] * 2
    draws = [fork_server.run(python("import random; print(random.random())")).stdout for _ in range(3)]
    assert len(set(draws)) == 3


def test_a_fault_point_is_armed_in_the_child_alone() -> None:
    source = "from budwood.volume import faults\nfaults._POINTS[{0!r}]()\nprint('lives')"
    point = "names: remote changed, not recorded"
    armed = {**os.environ, "BUDWOOD_FAULT": point}
    assert fork_server.run(python(source.format(point)), env=armed).returncode == -signal.SIGKILL
    assert fork_server.run(python(source.format(point))).stdout == "lives\n"


def test_it_leaves_no_other_process() -> None:
    def children() -> set[str]:
        return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())

    fork_server.run(python("pass"))
    before = children()
    for _ in range(5):
        fork_server.run(python("pass"))
    assert children() == before
