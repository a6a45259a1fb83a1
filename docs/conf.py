"""How Sphinx builds the site: `make docs`."""

from __future__ import annotations

import inspect
import os
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes

DOCS = Path(__file__).parent
sys.path[:0] = [str(DOCS.parent / "src"), str(DOCS)]
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the same pages on every machine
os.environ["OMP_NUM_THREADS"] = "1"  # the circuits are small, and pages are executed side by side
os.environ["PYTHONPATH"] = os.pathsep.join(
    path for path in (str(DOCS.parent / "src"), os.environ.get("PYTHONPATH")) if path
)

from circurve import __version__, curvature  # noqa: E402

project = "Circurve"
author = "The Circurve developers"
version = release = __version__
copyright = f"2026, {author}"

extensions = ["myst_nb", "sphinx.ext.autodoc", "numpydoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "reproduction", "leaderboard"]

# Markdown: headings get anchors, so that links into pages are checked.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # generated pages skip a level

# Tutorials are executed, every time: a cache would not notice a change of the package.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_output_stderr = "remove"
nb_merge_streams = True

# References: one that leads nowhere is a warning, and warnings are errors. Words in `single quotes` become links if
# they are names of the package.
nitpicky = True
default_role = "py:obj"
nitpick_ignore_regex = [("py:obj", r".*"), ("py:class", r".*")]
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False

smartquotes = False  # "--units" must stay as it is typed

html_theme = "furo"
pygments_dark_style = "github-dark"
html_title = "Circurve"
html_static_path = ["_static"]
html_css_files = ["circurve.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

ATTRIBUTE = re.compile(r"(?<!`)`(\.\w[^`]*)`(?!`)")
"""`.model`: an attribute of what a function returns, not a name to link."""

NUMBER = re.compile(r"[-+−]?[\d.,]*(e[-+]?\d+)?( ?± ?[\d.]+)?( ?(%|x|s|ms|us|kB|MB|GB|MiB|GiB|bytes))?|out of memory")
"""A number with its unit, or an empty cell."""


def tidy(_app: Any, what: str, name: str, _found: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings as Sphinx can read them: no links for attributes, and no sections inside those of modules.

    The package `circurve.curvature` is called like its function, whose docstring is shown.
    """
    if name == "circurve.curvature":
        lines[:] = (inspect.getdoc(curvature.curvature) or "").splitlines()
    lines[:] = [ATTRIBUTE.sub(r"``\1``", line) for line in lines]
    if what == "module":
        for number, line in enumerate(lines):
            if line == "--------":
                lines[number - 1 : number + 1] = [f".. rubric:: {lines[number - 1]}", ""]


def align_numbers(_app: Any, doctree: nodes.document, _name: str) -> None:
    """Columns of tables that hold only numbers, ranges and dashes are flushed right, as in print."""
    for body in doctree.findall(nodes.tbody):
        rows = [list(row.findall(nodes.entry)) for row in body.findall(nodes.row)]
        for column in zip(*rows, strict=False):
            texts = [cell.astext().strip() for cell in column]
            if any(texts) and all(NUMBER.fullmatch(text) for text in texts):
                for cell in column:
                    cell["classes"].append("number")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", tidy, priority=400)  # before numpydoc
    app.connect("doctree-resolved", align_numbers)
