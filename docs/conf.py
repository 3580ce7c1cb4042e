"""Sphinx's settings for the documentation site: ``make docs-site``."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from source_pages import linkcode_resolve  # noqa: E402, F401 - the line above makes it importable; linkcode asks for it

from tstatic.version import __version__  # noqa: E402

project = "tstatic"
author = "the tstatic authors"
copyright = "the tstatic authors. Licence: Apache-2.0"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.linkcode",
    "api_reference",
    "source_pages",
]
root_doc = "index"
nitpicky = True
# Types of other packages and of Python, which appear in annotations: this site links to nothing outside of it.
nitpick_ignore_regex = [
    (
        r"py:.*",
        r"(numpy|np|torch|collections|typing|types|pathlib|os|abc|argparse|contextlib|logging|hypothesis)(\..*)?",
    ),
]

myst_heading_anchors = 4  # links to headings are those of the Markdown pages
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints = "signature"
add_module_names = False
python_maximum_signature_line_length = 140
toc_object_entries = False  # every page holds the whole tree of contents: 1,500 functions in it take minutes

html_theme = "furo"
html_title = "tstatic"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
pygments_style = "default"
pygments_dark_style = "github-dark"


def point_into_the_site(app: Sphinx, name: str, text: list[str]) -> None:
    """Lets links to pages in the repository's root lead to the pages that include them."""
    text[0] = re.sub(
        r"\]\(((?:\.\./)*)\.\./(CONTRIBUTING|CHANGELOG)\.md", lambda m: f"]({m[1]}{m[2].lower()}.md", text[0]
    )


def setup(app: Sphinx) -> None:
    """Registers what this file does."""
    app.connect("source-read", point_into_the_site)
