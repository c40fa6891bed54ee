"""What an import costs: each way of use loads its own libraries and no others. Every case is a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import budwood
from budwood.volume import errors

from ..waits import LIMIT_SECONDS

HEAVY = {
    "anyio",
    "apsw",
    "granian",
    "httpx",
    "lmdb",
    "msgspec",
    "numpy",
    "obstore",
    "pyarrow",
    "pyfuse3",
    "pyroaring",
    "pyspark",
    "rich",
    "uvloop",
    "trio",
    "typer",
    "zstandard",
}


def loaded_by(code: str) -> set[str]:
    """The heavy libraries that a fresh process has loaded after `code`."""
    report = f"{code}\nimport sys\nprint(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", report], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_budwood_loads_no_library() -> None:
    assert loaded_by("import budwood; dir(budwood)") == set()


def test_asking_for_an_error_loads_no_library() -> None:
    assert loaded_by("from budwood import Conflict, Corrupt") == set()


def test_asking_a_node_loads_nothing_of_the_command_that_httpx_brings() -> None:
    asked = "from budwood.remote.import_httpx import import_httpx; import_httpx()"
    assert "rich" in loaded_by("import httpx"), "what is left out is here"
    assert loaded_by(f"{asked}; import httpx; httpx.AsyncClient()") & {"httpx", "rich"} == {"httpx"}
    assert "rich" in loaded_by(f"{asked}; import httpx._main"), "who wants it has it"


def test_the_lite_client_loads_no_store_no_server_and_no_terminal() -> None:
    loaded = loaded_by("from budwood.lite import connect")
    assert "apsw" in loaded
    assert not loaded & {"lmdb", "obstore", "uvloop", "granian", "typer", "rich"}


def test_the_edge_loads_no_server_and_no_terminal() -> None:
    loaded = loaded_by("from budwood import connect, open")
    assert {"apsw", "lmdb"} <= loaded
    assert not loaded & {"obstore", "uvloop", "granian", "typer", "rich"}


def test_the_remote_over_http_loads_no_server() -> None:
    assert not loaded_by("import budwood.remote") & {"lmdb", "obstore", "uvloop", "granian", "typer", "rich"}


def test_a_command_that_mounts_nothing_loads_no_fuse(tmp_path: Path) -> None:
    code = f"from budwood.cli.main import run; assert run(['--home', {str(tmp_path)!r}, 'status']) == 0"
    assert not loaded_by(code) & {"pyfuse3", "trio", "obstore", "uvloop", "granian", "rich"}


def test_the_list_of_mounts_loads_no_store_and_no_fuse() -> None:
    code = "from budwood.cli.main import run; assert run(['mounts']) == 0"
    assert not loaded_by(code) & {"pyfuse3", "trio", "lmdb", "apsw", "httpx", "msgspec", "obstore", "rich"}


def test_the_doctor_looks_at_spark_and_loads_none_of_it(tmp_path: Path) -> None:
    code = f"""
import contextlib, io
from budwood.cli.main import run
with contextlib.redirect_stdout(io.StringIO()) as said:
    assert run(['--home', {str(tmp_path)!r}, 'doctor']) == 0
assert 'spark' in said.getvalue()
"""
    assert not loaded_by(code) & {"pyspark", "pyarrow", "numpy", "obstore", "uvloop", "granian"}


def test_importing_spark_export_loads_no_spark_and_whoever_has_loaded_it_gets_no_more() -> None:
    assert loaded_by("import budwood.spark_export") == set()
    # Without a session there is nothing to register with.
    code = "import pyspark.sql, sys; before = set(sys.modules); import budwood.spark_export"
    report = f"{code}; assert not {{'msgspec', 'pyarrow', 'zstandard'}} & (sys.modules.keys() - before)"
    assert "pyspark" in loaded_by(report)


def test_the_face_has_every_error_and_nothing_that_does_not_resolve() -> None:
    tree = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.BudwoodError)}
    assert set(budwood.__all__) == {
        *(kind.__name__ for kind in tree),
        "aio",
        "connect",
        "dbapi",
        "diff",
        "listen",
        "log",
        "open",
        "replaying",
    }
    for name in budwood.__all__:
        assert name in dir(budwood)
        assert getattr(budwood, name) is not None
    assert budwood.Conflict is errors.Conflict


@pytest.mark.parametrize("name", ["aio", "dbapi", "log"])
@pytest.mark.parametrize("before", ["", "import budwood.{name}", "from budwood import {name}"])
def test_a_module_of_the_face_is_one_however_it_is_imported(name: str, before: str) -> None:
    """Frameworks take such a module by its dotted name."""
    code = f"""
{before.format(name=name)}
import budwood, importlib, budwood.{name} as one
from budwood import {name} as other
assert one is other is budwood.{name} is importlib.import_module("budwood.{name}")
from budwood.{name} import {"open_log" if name == "log" else "connect"}
"""
    assert loaded_by(code)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = budwood.nonsense  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_script_without_its_extra_says_what_to_install(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from budwood.cli.launch import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 1
    assert done.stderr.strip() == f"budwood: the command needs {missing}: pip install 'budwood[cli]'"


def test_the_script_does_not_hide_other_missing_modules() -> None:
    code = "import sys; sys.modules['budwood.cli.main'] = None; from budwood.cli.launch import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr
    assert "pip install" not in done.stderr
