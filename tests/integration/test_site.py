"""The site and the manual page are made of docs/ without a warning: no link leads nowhere, and every verb is there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

import typer.main

from budwood.cli.main import build

from ..waits import LIMIT_SECONDS

DOCS = Path(__file__).parents[2] / "docs"


def made(builder: str, folder: Path) -> Path:
    """What a builder makes of a copy, since it writes into what it reads."""
    docs, site = folder / "docs", folder / builder
    copytree(DOCS, docs, ignore=ignore_patterns("_build", "_verbs.md", "__pycache__"))
    sphinx = [sys.executable, "-P", "-m", "sphinx", "-q", "-W", "--keep-going", "-b", builder, str(docs), str(site)]
    done = subprocess.run(sphinx, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stdout + done.stderr
    return site


def verbs() -> list[str]:
    group = typer.main.get_command(build())
    return sorted(getattr(group, "commands", {}))


def test_the_site(tmp_path: Path) -> None:
    site = made("html", tmp_path)
    pages = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md") if path.name != "_verbs.md"}
    assert pages <= {path.relative_to(site) for path in site.rglob("*.html")}
    command = (site / "reference" / "command.html").read_text()
    for verb in verbs():
        assert f'href="#budwood-{verb}"' in command, verb
    python = (site / "reference" / "python.html").read_text()
    for name in ("budwood.connect", "budwood.open", "budwood.lite.connect", "budwood.volume.errors.Diverged"):
        assert f'id="{name}"' in python, name
    # Whoever reads the site is seen by nobody else.
    for path in site.rglob("*.html"):
        assert not re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["'](?:https?:)?//""", path.read_text()), path


def test_the_manual_page(tmp_path: Path) -> None:
    text = (made("man", tmp_path) / "budwood.1").read_text()
    for verb in verbs():
        assert f".SH BUDWOOD {verb.upper()}\n" in text.replace("\\-", "-"), verb
