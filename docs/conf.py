"""The site that `make docs` builds from this folder, and the manual page of the command.

Sphinx reads Markdown by MyST. What the pages of reference/ say is taken from the code.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version as version_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REFERENCE = Path(__file__).parent / "reference"

project = "Budwood"
author = "The developers of Budwood"
version = release = version_of("budwood")

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build", "reference/_verbs.md"]
# A link that leads nowhere, or to a heading that isn't there, fails the build (-W).
myst_heading_anchors = 4

autodoc_member_order = "bysource"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = "Budwood"
html_show_copyright = html_show_sphinx = html_copy_source = False

man_pages = [("reference/command", "budwood", "volumes of pages in an object store, opened as SQLite databases", "", 1)]


def write_verbs(_: Sphinx) -> None:
    """Every verb with its arguments, options and words, as the command has them."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "typer", str(REFERENCE / "app.py"), "utils", "docs", "--name", "budwood"],
        capture_output=True,
        text=True,
        check=True,
    )
    # The first heading is the page's own, and the list of verbs cuts their words off.
    top, _, verbs = done.stdout.partition("**Commands**")
    _, _, top = top.partition("# `budwood`\n")
    (REFERENCE / "_verbs.md").write_text(top + verbs[verbs.index("## ") :])


def leave_modules_out(_: Sphinx, what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """What a module says of itself is drawn for whoever reads the code."""
    if what == "module":
        lines.clear()


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", write_verbs)
    app.connect("autodoc-process-docstring", leave_modules_out)
