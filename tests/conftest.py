"""No test reaches the network or the user's cache; without a GPU, CUDA kernels run in Triton's interpreter."""

from __future__ import annotations

import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from hypothesis import settings

from interpreter import language_replaced

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # must be there before Triton is imported

# The same cases in every run, so that a change is judged by what it changed; `make explore` tries other ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("random", print_blob=True)
settings.load_profile("same")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of what only Linux has, such as /dev/full, are skipped elsewhere."""
    if sys.platform != "linux":
        for item in items:
            if item.get_closest_marker("linux"):
                item.add_marker(pytest.mark.skip(reason="needs Linux"))


def pytest_collection_finish() -> None:
    """Modules and collected tests stay until the end: garbage collections need not look through them each time."""
    gc.collect()
    gc.freeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--debd", type=Path, help="a folder with the DEBD files, for tests against published numbers")


@pytest.fixture
def debd(request: pytest.FixtureRequest) -> Path:
    """The folder of DEBD; tests that need it are skipped where it is not given."""
    folder = request.config.getoption("--debd")
    if folder is None:
        pytest.skip("give the folder of the DEBD files: --debd FOLDER")
    return Path(folder)


@pytest.fixture(scope="session", autouse=True)
def _no_network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CIRCURVE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("CIRCURVE_DEBD_URL", "http://127.0.0.1:9")
        patch.setenv("NO_PROXY", "127.0.0.1")
        yield


@pytest.fixture(scope="session", autouse=True)
def _interpreter() -> Iterator[None]:
    """Where kernels are interpreted, the language they are written in is replaced once and not at each call."""
    interpreted = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
    with language_replaced() if interpreted else nullcontext():
        yield
