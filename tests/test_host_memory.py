"""The memory that is available: what the system says, within the limits of control groups of both versions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch

from circurve import host_memory
from circurve.engine.memory import free_memory
from circurve.host_memory import available_memory

SYSTEM = 1_000_000


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with SYSTEM bytes available and no control groups so far."""
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=SYSTEM))
    monkeypatch.setattr(host_memory, "MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(host_memory, "GROUPS", tmp_path / "groups")
    return tmp_path


def join(folder: Path, lines: str) -> None:
    (folder / "membership").write_text(lines)


def second_version(folder: Path, path: str, limit: str, usage: int, cached: int = 0) -> None:
    group = folder / "groups" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.max").write_text(f"{limit}\n")
    (group / "memory.current").write_text(f"{usage}\n")
    (group / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")


def first_version(folder: Path, path: str, limit: int, usage: int, cached: int = 0) -> None:
    group = folder / "groups" / "memory" / path
    group.mkdir(parents=True, exist_ok=True)
    (group / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (group / "memory.usage_in_bytes").write_text(f"{usage}\n")
    (group / "memory.stat").write_text(f"inactive_file 999\ntotal_inactive_file {cached}\n")


def test_without_control_groups_the_system_decides(groups: Path) -> None:
    assert available_memory() == SYSTEM  # macOS and Windows have no such file


def test_a_process_in_no_limited_group_has_all_that_is_available(groups: Path) -> None:
    join(groups, "0::/user.slice/a.scope\n")
    second_version(groups, "user.slice/a.scope", "max", 5_000)
    assert available_memory() == SYSTEM


def test_a_limit_of_the_second_version_holds_and_cached_files_count_as_free(groups: Path) -> None:
    join(groups, "0::/job\n")
    second_version(groups, "job", "50000", 30_000, cached=10_000)
    assert available_memory() == 30_000


def test_a_limit_of_the_first_version_holds_and_cached_files_count_as_free(groups: Path) -> None:
    join(groups, "5:cpu,cpuacct:/other\n4:memory:/job/step\n0::/\n")
    first_version(groups, "job/step", 80_000, 30_000, cached=1_000)
    assert available_memory() == 51_000


def test_the_limit_of_a_group_above_holds_too(groups: Path) -> None:
    join(groups, "0::/job/step\n")
    second_version(groups, "job/step", "max", 100)
    second_version(groups, "job", "20000", 15_000)
    assert available_memory() == 5_000


def test_a_container_that_sees_its_own_group_on_top_is_limited(groups: Path) -> None:
    join(groups, "4:memory:/docker/of/the/host\n")
    first_version(groups, "", 9_000, 2_000)
    assert available_memory() == 7_000
    join(groups, "0::/../..\n")
    second_version(groups, "", "6000", 2_000)
    assert available_memory() == 4_000


def test_a_limit_that_is_used_up_leaves_nothing(groups: Path) -> None:
    join(groups, "0::/job\n")
    second_version(groups, "job", "1000", 1_500)
    assert available_memory() == 0


def test_files_that_cannot_be_understood_are_passed_over(groups: Path) -> None:
    join(groups, "0::/job\n")
    second_version(groups, "job", "a lot", 10)
    assert available_memory() == SYSTEM


def test_a_limit_beyond_the_machine_changes_nothing(groups: Path) -> None:
    join(groups, "4:memory:/job\n")
    first_version(groups, "job", 2**63 - 4096, 10)
    assert available_memory() == SYSTEM


def test_the_free_memory_of_a_cpu_is_that_of_the_machine(groups: Path) -> None:
    assert free_memory(torch.device("cpu")) == SYSTEM


def test_this_machine_has_memory() -> None:
    assert 2**20 < available_memory() <= psutil.virtual_memory().total
