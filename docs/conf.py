"""The site that `make docs` builds from this folder, and the manual page of the command.

Sphinx reads Markdown by MyST. What a page says of Python's names and of the command's verbs is taken from the code.
"""

from __future__ import annotations

import sys
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "reference"))

project = "Budwood"
author = "The developers of Budwood"
copyright = "Apache-2.0"  # noqa: A001 - Sphinx's word for it
version = release = version_of("budwood")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_click"]
exclude_patterns = ["_build"]
# A link that leads nowhere, or to a heading that isn't there, fails the build (-W).
nitpicky = True
nitpick_ignore_regex = [("py:.*", r".*")]
myst_heading_anchors = 4
myst_links_external_new_tab = True
suppress_warnings = ["misc.highlighting_failure"]

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"

html_theme = "furo"
html_title = "Budwood"
html_show_copyright = html_show_sphinx = False
html_copy_source = False

man_pages = [("reference/command", "budwood", "volumes of pages in an object store, opened as SQLite databases", "", 1)]
man_show_urls = True
