"""Workflows, hooks and metadata agree with each other; make lint checks their schema."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def jobs(workflow: Path) -> dict[str, Any]:
    return yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]


def recipe(target: str) -> list[str]:
    """The commands of a target of the Makefile."""
    found = re.search(rf"^{target}:[^\n]*\n((?:\t[^\n]*\n)+)", MAKEFILE, re.MULTILINE)
    assert found, f"the Makefile has no target {target}"
    return [line.strip().replace("$(BIN)/", "") for line in found[1].splitlines()]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_targets_that_exist(workflow):
    for job in jobs(workflow).values():
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            words = shlex.split(step.get("run", ""))
            if words[:1] == ["make"]:
                dependencies = re.search(rf"^{words[1]}:(.*)$", MAKEFILE, re.MULTILINE)
                assert dependencies, f"{workflow.name} runs make {words[1]}, which is not in the Makefile"


def test_the_matrix_covers_the_declared_versions_and_systems():
    matrix = jobs(ROOT / ".github" / "workflows" / "ci.yml")["newest"]["strategy"]["matrix"]
    named = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if ":: Python :: 3." in line]
    assert matrix["python"] == named
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}


def test_hooks_run_the_checks_of_make():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    hooks = [hook["entry"].removeprefix(".venv/bin/") for repo in config["repos"] for hook in repo["hooks"]]
    checks = [*recipe("lint"), *recipe("types"), *recipe("contracts")]
    plain = [re.sub(r" (--fix|--check)| \.github/workflows/\S+| \.$", "", check) for check in (*hooks, *checks)]
    assert sorted(plain[: len(hooks)]) == sorted(plain[len(hooks) :])


def test_publishing_asks_for_nothing_but_an_identity():
    publish = jobs(ROOT / ".github" / "workflows" / "release.yml")["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["environment"] == "pypi"
