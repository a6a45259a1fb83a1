"""The script that the package ships is built from the sources beside it, and comes with its licences."""

from __future__ import annotations

import hashlib
import html
import json
import re
import subprocess
import sys
import zipfile
from importlib.resources import files
from pathlib import Path

ROOT = Path(__file__).parents[2]
WEB = ROOT / "web"


def asset(name: str) -> str:
    return files("circurve.report").joinpath("assets", name).read_text(encoding="utf-8")


def test_the_script_is_built_from_the_present_sources():
    names = sorted([*(f"src/{path.name}" for path in (WEB / "src").iterdir()), "build.mjs", "package-lock.json"])
    total = hashlib.sha256()
    for name in names:
        total.update(name.encode() + b"\0" + (WEB / name).read_bytes() + b"\0")
    stated = re.search(r"sources ([0-9a-f]{64})", asset("page.js"))
    assert stated is not None
    assert stated[1] == total.hexdigest(), "web/ has changed: run 'make web' and commit src/circurve/report/assets"


def test_the_script_can_stand_in_a_page_and_every_package_has_its_licence():
    assert "</script" not in asset("page.js").lower()
    assert "<!--" not in asset("page.js")
    licences = asset("LICENSES.txt")
    listed = json.loads((WEB / "package.json").read_text())
    for name, version in listed["dependencies"].items():
        assert f"\n{name} {version} (" in licences
    assert "Permission to use, copy, modify" in licences


def test_a_page_carries_the_licences_of_its_script(made):
    assert html.escape(asset("LICENSES.txt")) in made.report.html


def test_the_wheel_has_the_assets(tmp_path):
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {f"circurve/report/assets/{n}" for n in ("page.js", "page.css", "page.html", "LICENSES.txt")} <= set(names)
    assert not any(name.startswith("web/") or "node_modules" in name for name in names)
