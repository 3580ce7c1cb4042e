"""A Sphinx extension: pages of the sources that the API reference links to, with a number and an anchor at each line.

Sphinx's own extension for this lays each of 400 files out as a page of the theme, which takes longer than all the rest.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexers.python import PythonLexer
from sphinx.application import Sphinx
from sphinx.errors import PycodeError
from sphinx.pycode import ModuleAnalyzer

ROOT = Path(__file__).parents[1]
FOLDER = "_code"

PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ margin: 0; padding: 0 1rem 2rem; font-family: system-ui, sans-serif; background: #fff; color: #222; }}
pre {{ font: 13px/1.45 ui-monospace, monospace; overflow-x: auto; }}
:target {{ background: #ffe98a66; }}
a {{ color: #0a4bff; }}
pre a {{ color: #888; text-decoration: none; }}
{light}
@media (prefers-color-scheme: dark) {{
body {{ background: #131416; color: #ddd; }}
a {{ color: #7aa7ff; }}
{dark}
}}
</style>
</head>
<body>
<p><a href="{home}">tstatic</a> / {title}</p>
{text}
</body>
</html>
"""

_wanted: set[Path] = set()
"""Files that a page links to."""


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Returns the link from a page of the reference to the line that defines an object, or ``None`` where there is no line."""
    if domain != "py" or not info["module"]:
        return None
    value: Any = importlib.import_module(info["module"])
    for part in info["fullname"].split("."):
        value = inspect.getattr_static(value, part, None) if inspect.isclass(value) else getattr(value, part, None)
    value = inspect.unwrap(getattr(value, "__func__", getattr(value, "fget", value)) or value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not module or not name or not module.startswith("tstatic"):
        return None
    try:
        analyzer = ModuleAnalyzer.for_module(module)
        line = analyzer.find_tags()[name][1]
    except (PycodeError, KeyError):
        return None
    path = Path(analyzer.srcname).resolve().relative_to(ROOT)
    _wanted.add(path)
    return f"../{FOLDER}/{path.as_posix()}.html#L-{line}"


def write(app: Sphinx, error: Exception | None) -> None:
    """Writes the pages of the files that are linked to. (An incremental build adds to those of earlier ones.)"""
    if error is not None or app.builder.name != "html":
        return
    lexer = PythonLexer()
    formatter = HtmlFormatter(linenos="inline", lineanchors="L", anchorlinenos=True, wrapcode=True)
    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in ("default", "github-dark"))
    for path in sorted(_wanted):
        page = Path(app.outdir) / FOLDER / f"{path.as_posix()}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        text = highlight((ROOT / path).read_text(encoding="utf-8"), lexer, formatter)
        home = "../" * (len(path.parts)) + "index.html"
        page.write_text(
            PAGE.format(title=path.as_posix(), home=home, text=text, light=light, dark=dark), encoding="utf-8"
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the extension."""
    app.connect("build-finished", write)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
