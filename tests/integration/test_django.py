"""Django's commands and its ORM over a volume: a project of its own, in processes of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

import budwood

from ..waits import LIMIT_SECONDS

PROJECT = Path(__file__).parents[1] / "compliance" / "django_project"


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.remote = folder / "home", f"file://{folder}/store"
        copytree(PROJECT, folder / "project")

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        where = {"SHOP_HOME": str(self.home), "SHOP_REMOTE": self.remote}
        modules = os.pathsep.join([".", *filter(None, [os.environ.get("PYTHONPATH")])])
        settings = {"DJANGO_SETTINGS_MODULE": "settings", "PYTHONPATH": modules, "PYTHONWARNINGS": "error"}
        return subprocess.run(
            [sys.executable, "-P", "-m", "django", *arguments],
            cwd=self.folder / "project",
            env=os.environ | where | settings,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    def manage(self, *arguments: str, stdin: str = "") -> str:
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project(tmp_path_factory.mktemp("django"))
    made.manage("makemigrations", "shop")
    assert "Applying shop.0001_initial... OK" in made.manage("migrate")
    return made


def test_migrations_are_rows_that_another_home_sees_once_they_are_pushed(project: Project, tmp_path: Path) -> None:
    assert "No migrations to apply" in project.manage("migrate")
    code = "from shop.models import Maker; Maker.objects.create(name='acme'); from django.db import connection"
    assert "'lsn': '1'" in project.manage("shell", "-c", f"{code}; print(connection.push())")
    with budwood.connect("shop", home=tmp_path / "there", remote=project.remote) as there:
        assert there.execute("SELECT name FROM shop_maker").fetchall() == [("acme",)]
        assert there.execute("SELECT name FROM django_migrations WHERE app = 'shop'").fetchall() == [("0001_initial",)]
    there.close()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["--keepdb"], ["--parallel", "2"]], ids=lambda given: given[0])
def test_the_orm_s_tests_pass_in_databases_of_their_own(project: Project, arguments: list[str]) -> None:
    done = project.run("test", "--noinput", *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Ran 11 tests" in done.stderr, done.stderr
    assert done.stderr.rstrip().splitlines()[-1] == "OK" or "\nOK\n" in done.stderr
    with budwood.open(home=f"{project.home}.tests", remote="") as edge:
        assert [row["name"] for row in edge.ls()] == (["test_shop"] if "--keepdb" in arguments else [])
    with budwood.open(home=project.home, remote=project.remote) as edge:
        assert [row["name"] for row in edge.ls()] == ["shop"], "the real home has what it had"


def test_inspectdb_shows_models_and_dbshell_is_a_shell(project: Project) -> None:
    shown = project.manage("inspectdb", "shop_item")
    assert "maker = models.ForeignKey('ShopMaker', models.DO_NOTHING)" in shown
    assert "price = models.DecimalField(" in shown
    assert project.manage("dbshell", "--", "SELECT count(*) FROM django_migrations WHERE app = 'shop'") == "1\n"
    assert "shop_item" in project.manage("dbshell", stdin=".tables\nSELECT 1;\n")
    done = project.run("dbshell", "--", "SELECT * FROM missing")
    assert done.returncode == 1
    assert "no such table: missing" in done.stderr
    assert "Traceback" not in done.stderr
