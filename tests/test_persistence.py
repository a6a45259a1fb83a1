"""Model files: what goes in comes out, all or nothing is written, and no damage passes unseen."""

from __future__ import annotations

import errno
import json
import os
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import Tensor

from circurve import persistence, whole_files
from circurve.errors import FileAccessError, FileFormatError, OptionError, ParameterError, StructureError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import Bernoulli, Binomial, Categorical, Gaussian, Indicator, Poisson
from circurve.model import Model, load
from circurve.persistence import read_metadata, read_model, write_model

FAMILIES = (Bernoulli(), Binomial(7), Categorical(3), Gaussian(0.25), Indicator((0, 2, 1)), Poisson())


def drawn_parameters(circuit: Circuit, dtype: torch.dtype = torch.float64, seed: int = 0) -> dict[Node, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    parameters: dict[Node, Tensor] = {}
    for node in circuit.nodes:
        if isinstance(node, Sum):
            block = torch.rand(node.units, node.child_units, generator=generator, dtype=torch.float64) + 0.1
            block *= 1 if node.mask is None else torch.from_numpy(node.mask.copy())
            parameters[node] = (block / block.sum(-1, keepdim=True)).to(dtype)
        elif isinstance(node, Input):
            parameters[node] = node.family.initialize(np.zeros(0), node.units, generator).to(dtype)
    return parameters


def rich_circuit() -> Circuit:
    """Every input family, masks, selections, shared children, names of all sorts, several roots."""
    inputs = [Input(v, f, 3, name=f"x{v}") for v, f in enumerate(FAMILIES)]
    left = Product(inputs[:3], [None, [2, 1, 0], np.array([1, 1, 2])], name='say "ü" \\ \ud800')
    right = Product(inputs[3:])
    mask = np.array([[True, False, True], [False, True, False], [True, True, True]])
    mixed = Sum(left, 3, mask=mask)
    chained = Sum([mixed, left], 2, name="")
    first = Product([chained, right], [[1, 0, 1], None])
    second = Product([mixed, right])
    return Circuit([Sum([first, second], 2, name="a"), Sum([second, first], 1, mask=[[True] + [False] * 5], name="b")])


def rich_rows() -> np.ndarray:
    columns = [[0, 1, 1, 0], [0, 7, 3, 2], [0, 1, 2, np.nan], [-1.5, 0.0, 2.5, 0.1], [0, 2, 1, np.nan], [0, 4, 9, 1]]
    return np.array(columns, dtype=float).T


def small_circuit() -> Circuit:
    inputs = [Input(v, Bernoulli(), 2) for v in range(2)]
    return Circuit(Sum(Product(inputs, [None, [1, 0]]), 1, mask=[[True, True]], name="root"))


def small_file(path: Path) -> Path:
    circuit = small_circuit()
    write_model(path, circuit, drawn_parameters(circuit, torch.float32), {"by": "test"})
    return path


def assert_same(circuit: Circuit, parameters: dict[Node, Tensor], path: Path) -> None:
    """The file holds this circuit, node by node, and these parameters, bit by bit."""
    other, read = read_model(path)
    position = {n: i for i, n in enumerate(circuit.nodes)}
    found = {n: i for i, n in enumerate(other.nodes)}
    assert [position[r] for r in circuit.roots] == [found[r] for r in other.roots]
    assert list(read) == [n for n in other.nodes if not isinstance(n, Product)]
    for mine, its in zip(circuit.nodes, other.nodes, strict=True):
        assert (type(its), its.units, its.name) == (type(mine), mine.units, mine.name)
        assert [found[c] for c in its.children] == [position[c] for c in mine.children]
        if isinstance(mine, Input) and isinstance(its, Input):
            assert (its.variable, its.family) == (mine.variable, mine.family)
        elif isinstance(mine, Sum) and isinstance(its, Sum):
            np.testing.assert_equal(its.mask, mine.mask)
        elif isinstance(mine, Product) and isinstance(its, Product):
            np.testing.assert_equal(its.select, mine.select)
            continue
        assert torch.from_numpy(read[its]).dtype == parameters[mine].dtype
        assert torch.equal(torch.from_numpy(read[its]), parameters[mine])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("circuit", [rich_circuit(), small_circuit(), Circuit(Input(0, Indicator((4, 4)), 2))])
def test_everything_that_a_circuit_has_comes_back(tmp_path: Path, circuit: Circuit, dtype: torch.dtype) -> None:
    parameters = drawn_parameters(circuit, dtype)
    write_model(tmp_path / "m.safetensors", circuit, parameters)
    assert_same(circuit, parameters, tmp_path / "m.safetensors")


def test_tensors_are_kept_bit_by_bit_whatever_their_layout(tmp_path: Path) -> None:
    leaf = Input(0, Gaussian(), 2)
    circuit = Circuit(Sum(leaf, 3, mask=np.ones((2, 3), bool).T))
    block = torch.tensor([[1.0, -0.0, 1e-310], [1e-17, 1.0, 1.0]], dtype=torch.float64)
    parameters = {circuit.roots[0]: block.T.requires_grad_(), leaf: torch.arange(8.0)[::2].reshape(2, 2) + 1}
    write_model(tmp_path / "m", circuit, parameters)
    read = [torch.from_numpy(array) for array in read_model(tmp_path / "m")[1].values()]
    assert read[0].dtype == torch.float32
    assert torch.equal(read[0], parameters[leaf])
    assert torch.equal(read[1].view(torch.int64), block.T.contiguous().detach().view(torch.int64))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loaded_model_gives_exactly_the_same_log_probabilities(tmp_path: Path, dtype: torch.dtype) -> None:
    circuit = rich_circuit()
    drawn = drawn_parameters(circuit, dtype)
    weights: dict[Node, Tensor] = {node: value for node, value in drawn.items() if isinstance(node, Sum)}
    inputs: dict[Node, Tensor] = {node: value for node, value in drawn.items() if isinstance(node, Input)}
    model = Model.from_parameters(circuit, weights, inputs, dtype)
    model.save(tmp_path / "m.safetensors")
    loaded = load(tmp_path / "m.safetensors")
    assert loaded.dtype == dtype
    np.testing.assert_array_equal(loaded.log_prob(rich_rows()), model.log_prob(rich_rows()))
    loaded.save(str(tmp_path / "m.safetensors"))  # over the file it came from
    np.testing.assert_array_equal(load(tmp_path / "m.safetensors").log_prob(rich_rows()), model.log_prob(rich_rows()))


@given(extra=st.dictionaries(st.text(), st.text(), max_size=4))
@settings(max_examples=25, deadline=None)
def test_extra_text_comes_back(tmp_path_factory: pytest.TempPathFactory, extra: dict[str, str]) -> None:
    circuit = small_circuit()
    path = tmp_path_factory.mktemp("extra") / "m"
    write_model(path, circuit, drawn_parameters(circuit), extra)
    assert read_metadata(path) == extra


def test_a_chain_of_twenty_thousand_variables_takes_seconds(tmp_path: Path) -> None:
    node: Node = Input(0, Bernoulli(), 2)
    for variable in range(1, 20_000):
        node = Sum(Product([node, Input(variable, Bernoulli(), 2)]), 2)
    circuit = Circuit(node)
    blocks = {Sum: torch.full((2, 2), 0.5), Input: torch.full((2, 1), 0.5)}
    parameters: dict[Node, Tensor] = {n: blocks[type(n)] for n in circuit.nodes if not isinstance(n, Product)}
    start = time.process_time()
    write_model(tmp_path / "m", circuit, parameters)
    other, _ = read_model(tmp_path / "m")
    assert time.process_time() - start < 20  # about 3 on an idle machine
    assert len(other.nodes) == len(circuit.nodes)


class Homemade(Bernoulli):
    """A family of the user's own."""

    name = "homemade"


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    circuit = small_circuit()
    root, good = circuit.roots[0], drawn_parameters(circuit)
    stranger = Input(0, Bernoulli())
    refused: list[tuple[dict[Node, Tensor], str]] = [
        ({n: v for n, v in good.items() if n is not root}, "Sum 'root': no parameters"),
        (good | {root: good[root].T}, r"Sum 'root': parameters have shape \(2, 1\), expected \(1, 2\)"),
        (good | {root: good[root].half()}, "Sum 'root': .* not torch.float16"),
        (good | {stranger: torch.zeros(1, 1)}, "is not a sum or an input of this circuit"),
    ]
    for parameters, culprit in refused:
        with pytest.raises(ParameterError, match=culprit):
            write_model(tmp_path / "m", circuit, parameters)
    with pytest.raises(OptionError, match="'epochs' to 3"):
        write_model(tmp_path / "m", circuit, good, {"epochs": 3})  # type: ignore[dict-item]
    own = Input(0, Homemade(), name="mine")
    with pytest.raises(StructureError, match=r"Input 'mine': .* Homemade"):
        write_model(tmp_path / "m", Circuit(own), {own: torch.full((1, 1), 0.5)})
    assert not list(tmp_path.iterdir())


def test_a_structure_too_large_for_the_format_is_refused(tmp_path: Path) -> None:
    leaf = Input(0, Bernoulli(), name="x" * 100_000_000)
    with pytest.raises(StructureError, match="does not fit into a safetensors file"):
        write_model(tmp_path / "m", Circuit(leaf), {leaf: torch.full((1, 1), 0.5)})
    assert not list(tmp_path.iterdir())


def failing(code: int) -> Callable[..., None]:
    def fail(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    return fail


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def assert_write_fails(path: Path, reason: str) -> None:
    circuit = small_circuit()
    with pytest.raises(FileAccessError, match=f"cannot write .*{path.name}: .*{reason}"):
        write_model(path, circuit, drawn_parameters(circuit, seed=1))


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize(
    ("failure", "error"), [(failing(errno.ENOSPC), FileAccessError), (interrupted, KeyboardInterrupt)]
)
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, failure: Any, error: type[BaseException]
) -> None:
    path = small_file(tmp_path / "m.safetensors")
    before = path.read_bytes()
    monkeypatch.setattr(os, call, failure)
    with pytest.raises(error, match=r"cannot write .*m.safetensors: No space left|^$"):
        small_file(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.linux
def test_a_full_disk_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_files, "open", lambda *_: open("/dev/full", "wb"), raising=False)  # noqa: SIM115
    assert_write_fails(tmp_path / "m", "No space left on device")
    assert not list(tmp_path.iterdir())


@pytest.mark.linux
def test_a_file_size_limit_of_the_system_is_reported(tmp_path: Path) -> None:
    import resource

    path = small_file(tmp_path / "m.safetensors")
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert_write_fails(path, "File too large")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.linux
def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    assert_write_fails(tmp_path / "absent" / "m", "No such file or directory")
    assert_write_fails(tmp_path, "it is a folder")
    small_file(tmp_path / "file")
    assert_write_fails(tmp_path / "file" / "m", "Not a directory")
    assert_write_fails(tmp_path / ("m" * 300), "File name too long")
    assert_write_fails(Path("/dev/null"), "not a regular file")
    assert_write_fails(tmp_path / "nul\0", "null")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_missing_permissions_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = small_file(tmp_path / "m")
    for module in (whole_files, persistence):
        monkeypatch.setattr(module, "open", failing(errno.EACCES), raising=False)  # chmod does not stop root
    assert_write_fails(path, "Permission denied")
    with pytest.raises(FileAccessError, match=r"cannot read .*m: Permission denied"):
        read_model(path)


@pytest.mark.linux
def test_links_are_followed_and_permissions_kept(tmp_path: Path) -> None:
    small_file(tmp_path / "m").chmod(0o640)
    (tmp_path / "latest").symlink_to("m")
    small_file(tmp_path / "latest")
    assert (tmp_path / "latest").is_symlink()
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o640


@pytest.mark.linux
@pytest.mark.parametrize("read", [read_model, read_metadata, load])
def test_places_that_cannot_be_read_are_named(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    places = [(tmp_path / "absent", "No such file"), (tmp_path, "folder"), (tmp_path / "pipe", "not a regular file")]
    for path, reason in [*places, (tmp_path / "nul\0", "null")]:
        with pytest.raises(FileAccessError, match=f"cannot read .*{path.name}: .*{reason}"):
            read(path)


class Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("/tmp/circurve-trap",)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"a text file\n" * 9, pickle.dumps(Trap()), bytes(100), b"\x02" + bytes(7) + b"{}"]
)
@pytest.mark.parametrize("read", [read_model, read_metadata, load])
def test_foreign_files_are_refused(tmp_path: Path, read: Callable[[Path], object], content: bytes) -> None:
    (tmp_path / "foreign").write_bytes(content)
    with pytest.raises(FileFormatError, match="foreign: "):
        read(tmp_path / "foreign")
    assert not os.path.exists("/tmp/circurve-trap")


def changed(path: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], object]) -> None:
    """Let `change` alter structure and tensors of a small file; write it again with right checksums."""
    with safe_open(small_file(path), framework="np") as file:
        structure = json.loads(file.metadata()["circurve"])
        extra = file.metadata()["extra"]
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    order = ("parameters.0", "parameters.1", "select.2.1", "weights.3", "mask.3")
    change(structure, tensors)
    structure["tensors_crc32"] = persistence._crc32(tensors[name] for name in order if name in tensors)
    text = json.dumps(structure)
    checksum = persistence._crc32([text.encode(), extra.encode()])
    save_file(tensors, path, {"circurve": text, "extra": extra, "crc32": str(checksum)})


INVALID: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda s, t: s.update(version=2), r"newer version of Circurve \(format 2, this one reads up to 1\)"),
    (lambda s, t: s.update(version=0), "format name and version"),
    (lambda s, t: s.update(format="other"), "format name and version"),
    (lambda s, t: s.pop("nodes"), "'nodes' must be a list"),
    (lambda s, t: s.update(roots=[4]), "'roots'"),
    (lambda s, t: s.update(roots=[]), "at least one root"),
    (lambda s, t: s.update(roots=[2]), "it is not below any root"),
    (lambda s, t: s["nodes"].append(5), "node 4 is not an input"),
    (lambda s, t: s["nodes"][0].update(kind="leaf"), "node 0 is not an input"),
    (lambda s, t: s["nodes"][0].update(variable=10**12), "node 0: 'variable'"),
    (lambda s, t: s["nodes"][0].update(variable=1), "share variables"),
    (lambda s, t: s["nodes"][0].update(units=0), "node 0: .*units"),
    (lambda s, t: s["nodes"][0].update(family={"name": "cauchy"}), "node 0: unknown input family 'cauchy'"),
    (lambda s, t: s["nodes"][0].update(name=3), "node 0: 'name'"),
    (lambda s, t: s["nodes"][2].pop("children"), "'children' must be a list"),
    (lambda s, t: s["nodes"][2].update(children=[0, 2]), "node 2: 'children'"),
    (lambda s, t: s["nodes"][2].update(units=5), "node 2: a product of 2 units declares 5"),
    (lambda s, t: s["nodes"][2].update(select=[2]), "node 2: 'select'"),
    (lambda s, t: s["nodes"][2].update(select=[0, 1]), "'select.2.0' is missing"),
    (lambda s, t: s["nodes"][3].update(mask=False), "'mask.3' belongs to no node"),
    (lambda s, t: t.pop("weights.3"), "'weights.3' is missing"),
    (lambda s, t: t.update({"weights.9": t["weights.3"]}), "'weights.9' belongs to no node"),
    (lambda s, t: t.update({"weights.3": t["weights.3"].T.copy()}), r"'weights.3' has shape \(2, 1\)"),
    (lambda s, t: t.update({"weights.3": t["weights.3"].astype("f2")}), "'weights.3' has dtype F16"),
    (lambda s, t: t.update({"parameters.0": np.zeros((2, 0), "f4")}), r"'parameters.0' has shape \(2, 0\)"),
    (lambda s, t: t.update({"mask.3": t["mask.3"][:, :1].copy()}), "node 3: .*mask must be"),
    (lambda s, t: t.update({"mask.3": t["mask.3"].astype("i8")}), "'mask.3' has dtype I64"),
    (lambda s, t: t.update({"select.2.1": np.array([0, 2])}), "node 2: .*select names unit 2"),
]


@pytest.mark.parametrize(("change", "culprit"), INVALID)
def test_an_invalid_structure_or_tensor_is_named(
    tmp_path: Path, change: Callable[[Any, Any], object], culprit: str
) -> None:
    changed(tmp_path / "odd", change)
    with pytest.raises(FileFormatError, match=f"odd: .*{culprit}"):
        read_model(tmp_path / "odd")


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, "{", '{"format": "circurve", "version": 1}'])
def test_invalid_metadata_are_refused(tmp_path: Path, text: str) -> None:
    for metadata in ({"circurve": text}, {"circurve": text, "extra": "{}", "crc32": "0"}, {"other": text}):
        save_file({"weights.0": np.ones((1, 1))}, tmp_path / "odd", metadata)
        for read in (read_model, read_metadata):
            with pytest.raises(FileFormatError, match="odd: "):
                read(tmp_path / "odd")


def test_a_file_cut_anywhere_or_too_long_is_refused(tmp_path: Path) -> None:
    content = small_file(tmp_path / "m").read_bytes()
    for part in (*(content[:end] for end in range(len(content))), content + b"\0"):
        (tmp_path / "cut").write_bytes(part)
        with pytest.raises(FileFormatError, match="cut: "):
            read_model(tmp_path / "cut")


def test_a_changed_byte_anywhere_is_refused_or_harmless(tmp_path: Path) -> None:
    """Harmless are only blanks: the head of a file is padded with them, and a tab will do as well."""
    content = small_file(tmp_path / "m").read_bytes()
    for place, byte in enumerate(content):
        flipped = bytes([byte ^ 1 << place % 8])
        assert_refused_or_same(tmp_path / "bad", content[:place] + flipped + content[place + 1 :])


@given(places=st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), min_size=1, max_size=6))
@settings(max_examples=200, deadline=None)
def test_random_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.mktemp("damage")
    damaged = bytearray(small_file(folder / "m").read_bytes())
    for place, byte in places:
        damaged[place % len(damaged)] = byte
    assert_refused_or_same(folder / "bad", bytes(damaged))


def assert_refused_or_same(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    circuit = small_circuit()
    try:
        assert_same(circuit, drawn_parameters(circuit, torch.float32), path)
    except FileFormatError:
        return
    assert read_metadata(path) == {"by": "test"}
