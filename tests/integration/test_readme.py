"""What the README says one can type works as it stands, but for where the store and the node are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import apsw

from .cli import serving

README = Path(__file__).parents[2] / "README.md"
BUDWOOD = f'budwood() {{ {sys.executable} -P -c "from budwood.cli.launch import main; main()" "$@"; }}\n'


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)


def test_every_example_of_the_readme_runs(tmp_path: Path) -> None:
    shop = apsw.Connection(str(tmp_path / "shop.db"))
    shop.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2)")
    shop.close()
    with serving(tmp_path / "store") as url:

        def said(command: list[str], home: str, text: str) -> str:
            text = text.replace("http://127.0.0.1:7447", url)
            text = text.replace("file:///srv/budwood", (tmp_path / "store").as_uri())
            environment = {"BUDWOOD_HOME": str(tmp_path / home), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
            done = subprocess.run(
                [*command, text], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            assert (done.returncode, done.stderr) == (0, ""), text
            return done.stdout

        python = [sys.executable, "-P", "-c"]
        local, elsewhere, lite, uri = blocks("python")
        assert said(python, "one", local) == ""
        assert said(python, "two", "import budwood\n" + elsewhere) == "[(40,)]\n"
        (_, shell) = blocks("sh")
        shell = re.sub(r"^budwood serve .*\n", "", shell)
        assert "\n2\n" in said(["bash", "-euc"], "three", BUDWOOD + shell)
        said(python, "four", lite + 'assert db.execute("SELECT count(*) FROM orders").fetchall() == [(2,)]')
        said(python, "five", uri)
