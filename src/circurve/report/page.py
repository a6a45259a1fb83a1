"""A page as one HTML file: template, style, script and data in it; it loads nothing else."""

from __future__ import annotations

import base64
import hashlib
import html
from functools import cache
from importlib.resources import files

from circurve.report.pack import json_for_html
from circurve.report.record import Finding, Page

__all__ = ["render"]

POLICY = "default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is loaded, nothing is sent, and no other script runs, whatever the data hold."""


@cache
def _asset(name: str) -> str:
    return files("circurve.report").joinpath("assets", name).read_text(encoding="utf-8")


KICKERS = {"fit": "Fit", "sharpness": "Sharpness", "advice": "What to try"}


def _finding(finding: Finding) -> str:
    headline, text = html.escape(finding.headline), html.escape(finding.text)
    return f'<li><span class="kicker">{KICKERS[finding.kind]}</span><strong>{headline}</strong><p>{text}</p></li>'


def render(page: Page) -> str:
    """The HTML text. Strings of the data are in escaped JSON, which the script writes as text, never as HTML."""
    script = _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    parts = {
        "policy": html.escape(POLICY.format(digest=digest), quote=True),
        "title": html.escape(page.title),
        "about": html.escape(page.about),
        "style": _asset("page.css"),
        "data": json_for_html(page.plain),
        "findings": "".join(map(_finding, page.findings)),
        "script": script,
    }
    head, *rest = _asset("page.html").split("{{")
    pieces = [head]
    for piece in rest:  # one walk over the template: what a part holds is never searched for marks
        name, _, after = piece.partition("}}")
        pieces += [parts[name], after]
    return "".join(pieces)
