"""The examples run as they stand, and the demo cleans up behind itself, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ..mounts import needs_fuse
from ..programs import path_with_sqlite3, path_without
from ..spark_session import why_not
from ..waits import LIMIT_SECONDS

EXAMPLES = Path(__file__).parents[2] / "examples"


def environment(folder: Path) -> dict[str, str]:
    """Temporary files go where they can be seen; nothing of the user's own budwood is used."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUDWOOD_")}
    return kept | {"TMPDIR": str(folder), "HOME": str(folder), "PYTHONWARNINGS": "error"}


def run(
    example: str,
    *arguments: str,
    folder: Path,
    command: tuple[str, ...] = (sys.executable, "-P"),
    path: str = "",
    modules: str = "",
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*command, str(EXAMPLES / example), *arguments],
        env=environment(folder) | ({"PATH": path} if path else {}) | ({"PYTHONPATH": modules} if modules else {}),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def test_the_quickstart_shows_the_change_on_the_other_side(tmp_path: Path) -> None:
    done = run("quickstart.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "pushed, LSN 1",
        "there:  [('bolt', 40), ('nut', 60)]",
        "pushed, LSN 2",
        "pulled, LSN 2",
        "here:   [('bolt', 35), ('nut', 60)]",
        "LSN 1:  [('bolt', 40), ('nut', 60)]",
    ]
    assert list(tmp_path.iterdir()) == []


LOOP = [
    "pushed, LSN 1",
    "heard of LSN 2",
    "there:  screw 9",
    "there:  washer 7",
    "given up: True",
    "goes on: (2,)",
]
PEOPLE = {
    "orm_sqlalchemy.py": [
        "pushed, LSN 1",
        "pushed, LSN 2",
        "there:  [('bolt', 35), ('nut', 60)]",
        "LSN 1:  [('bolt', 40), ('nut', 60)]",
    ],
    "orm_django.py": [
        "pushed, LSN 1",
        "here:   [('bolt', 35), ('nut', 60)]",
        "unpushed: 1",
        "there:  [('bolt', 40), ('nut', 60)]",
    ],
    "event_loop.py": LOOP,
    "event_loop.py trio": LOOP,
    "frames_pandas.py": ["rows: 3", "pushed, LSN 1", "pushed, LSN 2", "LSN 1: [107]", "LSN 2: [116]"],
    "frames_polars.py": [
        "by an engine: [('bolt', 40), ('nut', 60)]",
        "by DB-API:    107 [('name', String), ('count', Int64)]",
        "pushed, LSN 1",
    ],
}


@pytest.mark.parametrize("command", PEOPLE)
def test_each_way_from_python_shows_what_it_does(tmp_path: Path, command: str) -> None:
    example, *arguments = command.split()
    done = run(example, *arguments, folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == PEOPLE[command]
    assert list(tmp_path.iterdir()) == []


def test_spark_shows_a_past_lsn_and_what_was_changed_since(tmp_path: Path) -> None:
    missing = why_not()
    # Spark's own workers would tell of files that they leave open.
    calm = environment(tmp_path) | {"PYTHONWARNINGS": "default"}
    done = subprocess.run(
        [sys.executable, "-P", str(EXAMPLES / "spark.py")],
        env=calm,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == (
        [f"skipped: {missing}"]
        if missing
        else [
            "LSN 1:  [('bolt', 40), ('nut', 60)]",
            "now:    [('bolt', 35), ('washer', 7)]",
            "LSN 2:  update_postimage bolt 35",
            "LSN 2:  update_preimage bolt 40",
            "LSN 3:  delete nut 60",
            "LSN 3:  insert washer 7",
        ]
    )
    assert_nothing_is_left(tmp_path)


@needs_fuse
def test_the_mounts_example_shows_the_files_of_one_home_in_the_other(tmp_path: Path) -> None:
    path = os.pathsep.join([os.path.dirname(sys.executable), path_with_sqlite3(tmp_path / "bin")])
    done = run("mount.sh", folder=tmp_path, command=("sh",), path=path)
    shutil.rmtree(tmp_path / "bin")
    assert (done.returncode, done.stderr) == (0, "")
    told = [line for line in done.stdout.splitlines() if not line.startswith(("pushed ", "unmounted "))]
    assert told == ["./inventory", "./notes/today", "count the bolts", "bolt|35"]
    assert_nothing_is_left(tmp_path)


@pytest.mark.slow
@needs_fuse
@pytest.mark.longest
def test_the_demo_ends_well_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = run("demo.py", "--lines", "30000", folder=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Every answer was the one that stock sqlite3 gives." in done.stdout
    assert "is a node listening there?" in done.stdout
    assert done.stdout.count("\n  unmounted ") == 2
    assert "\n  seen at the first edge\n  and at the second\n" in done.stdout
    assert_nothing_is_left(tmp_path)


def old_spark(folder: Path) -> str:
    """A folder of modules that make this machine's Spark too old: that part takes longer than the rest of the demo."""
    told = folder / "modules" / "pyspark-0.1.dist-info"
    told.mkdir(parents=True)
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: pyspark\nVersion: 0.1\n")
    return str(told.parent)


@pytest.mark.slow
@pytest.mark.parametrize("lacking", ["fusermount", pytest.param("sqlite3", marks=needs_fuse)])
def test_the_demo_goes_on_without_mounts_sqlite3_and_spark_and_says_why(tmp_path: Path, lacking: str) -> None:
    path = path_without(tmp_path / "bin", lacking)
    done = run("demo.py", "--lines", "30000", folder=tmp_path, path=path, modules=old_spark(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    said = [line for line in done.stdout.splitlines() if line.startswith("skipped: ")]
    assert "pyspark 0.1 is too old" in said.pop()
    if lacking == "sqlite3":
        assert said == []
        assert "this machine has no sqlite3 command: Python's own does its part" in done.stdout
    else:
        (mounts,) = said
        assert mounts.startswith("skipped: a mount needs ") or "/dev/fuse" in mounts
    assert "Every answer was the one that stock sqlite3 gives." in done.stdout
    shutil.rmtree(tmp_path / "bin")
    shutil.rmtree(tmp_path / "modules")
    assert_nothing_is_left(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line", ["a node serves", pytest.param("rows are there for a Python that has", marks=needs_fuse)]
)
def test_the_demo_stopped_halfway_ends_what_it_started_and_leaves_nothing_behind(tmp_path: Path, line: str) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-P", str(EXAMPLES / "demo.py"), "--lines", "30000"],
        env=environment(tmp_path) | {"PYTHONUNBUFFERED": "1"},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with demo:
        assert demo.stdout is not None
        assert any(line in each for each in demo.stdout)
        assert processes_of(tmp_path), "this test can't see a process that is left behind"
        demo.send_signal(signal.SIGTERM)
        rest = demo.stdout.read()
        assert demo.wait(LIMIT_SECONDS) == 130, rest
    assert "everything is cleaned up" in rest
    assert_nothing_is_left(tmp_path)


def assert_nothing_is_left(folder: Path) -> None:
    assert f" {folder}/" not in Path("/proc/self/mountinfo").read_text()
    assert processes_of(folder) == []
    assert list(folder.iterdir()) == []


def processes_of(folder: Path) -> list[str]:
    """The command lines that name it: nodes and mounts do."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # It has ended.
            continue
    return [each for each in found if str(folder) in each]


def test_the_demo_says_in_one_line_what_failed(tmp_path: Path) -> None:
    broken = (EXAMPLES / "demo.py").read_text().replace('ONLINE = "UPDATE files', 'ONLINE = "UPDATE nowhere')
    assert "nowhere" in broken
    (tmp_path / "demo.py").write_text(broken)
    done = run(str(tmp_path / "demo.py"), "--lines", "3000", folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert [each.name for each in tmp_path.iterdir()] == ["demo.py"]
