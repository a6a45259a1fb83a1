"""A short run of the fuzzers: damaged files are taken or refused with a message, by every loader.

`make stress` feeds the same targets for an hour, in processes of their own (stress/fuzz.py).
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fuzz_targets import TARGETS, damaged

BROKE_ONCE = "broke"
"""The beginning of the names of files that once broke a loader."""


@pytest.mark.parametrize("name", TARGETS)
def test_the_files_of_the_corpus_load(name: str, tmp_path: Path) -> None:
    target = TARGETS[name]
    for file in target.files():
        found = target.run(tmp_path / f"x{target.suffix}", file.read_bytes())
        assert found == "loaded" or file.name.startswith(BROKE_ONCE), file.name


@pytest.mark.parametrize("name", TARGETS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_files_are_taken_or_refused(name: str, tmp_path: Path, seed: int) -> None:
    target = TARGETS[name]
    target.run(tmp_path / f"x{target.suffix}", damaged(random.Random(seed), target, target.corpus()))


@pytest.mark.parametrize("name", TARGETS)
@given(content=st.binary(max_size=200))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_taken_or_refused(name: str, tmp_path: Path, content: bytes) -> None:
    target = TARGETS[name]
    target.run(tmp_path / f"x{target.suffix}", content)
