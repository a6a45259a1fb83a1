"""Model files: one safetensors file with the structure as JSON in its metadata and every array as a tensor.

The metadata has three entries. `circurve` is the structure:

    {"format": "circurve", "version": 1, "roots": [2], "tensors_crc32": 2774, "nodes": [
        {"kind": "input", "units": 2, "variable": 0, "family": {"name": "bernoulli"}},
        {"kind": "product", "units": 2, "children": [0], "select": [0]},
        {"kind": "sum", "units": 1, "children": [1], "mask": true, "name": "root"}]}

Nodes come children first and are named by their position. `select` lists the places of the children that have a unit
selection. The tensors are `parameters.0` (units, parameters of the family), `select.1.0` (units), `weights.2` and
`mask.2` (units, child units). Where the columns of data have names or categories, there is an entry `schema` next to
`nodes`:

    {"columns": [{"name": "sex", "kind": "category", "categories": ["f", "m"], "family": {...}}]}

`extra` is the caller's own text as a JSON object; `crc32` is the checksum of these two texts. The checksums are there
because a flipped bit in a weight or in a hyperparameter leaves a file that is perfectly well formed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import Tensor

from circurve.bounds import cut, parse_json, shortened
from circurve.engine.params import SAVED_TOLERANCE, check_parameters
from circurve.errors import FileAccessError, FileFormatError, OptionError, ParameterError, StructureError
from circurve.graph import Circuit, Input, Node, Product, Sum
from circurve.inputs import FAMILIES, Family, family_reader, family_to_json
from circurve.model_checks import check_cost, check_memory, check_parts
from circurve.schema import Schema
from circurve.tensor_files import read_arrays
from circurve.whole_files import reason_of, refuse_special, replace_file
from circurve.words import counted

__all__ = ["FORMAT_VERSION", "read_metadata", "read_model", "write_model"]

FORMAT_VERSION = 1
"""The version that is written, and the newest that is read."""

FLOATS = ("F32", "F64")
"""The dtypes that parameters and weights may have in a file."""

MAX_HEADER, MAX_POSITION = 100_000_000, 2**53
"""The longest header that safetensors allow, and the largest count of anything: beyond, a file is damaged."""

Array = NDArray[Any]
Record = dict[str, Any]
"""One node in the structure."""


def write_model(
    path: str | PathLike[str],
    circuit: Circuit,
    parameters: Mapping[Node, Tensor],
    extra: Mapping[str, str] | None = None,
    schema: Schema | None = None,
) -> None:
    """Write a circuit and its parameters to one file, all or nothing: on failure an existing file stays as it was.

    parameters: (units, child units) for each Sum, (units, parameters) for each Input, float32 or float64.
    extra: text to save with the model, such as how it was trained; `read_metadata` returns it.
    schema: what the columns of data mean; that of the circuit by default.
    Parameters that `load` would refuse are refused here, before any file is touched. The file is put together in memory
    first.
    """
    arrays = _arrays(circuit, parameters)
    check_parameters(circuit, parameters, SAVED_TOLERANCE)
    position = {node: index for index, node in enumerate(circuit.nodes)}
    structure: dict[str, Any] = {
        "format": "circurve",
        "version": FORMAT_VERSION,
        "roots": [position[root] for root in circuit.roots],
        "tensors_crc32": _crc32(arrays.values()),
        "nodes": [_record(node, position, circuit) for node in circuit.nodes],
    }
    schema = schema or circuit.schema
    if schema is not None and not schema.plain:
        structure["schema"] = schema.to_json()
    texts = [json.dumps(structure, separators=(",", ":")), json.dumps(_checked_extra(extra))]
    metadata = {"circurve": texts[0], "extra": texts[1], "crc32": str(_crc32(text.encode() for text in texts))}
    replace_file(path, _file_content(arrays, metadata, circuit))


def read_model(
    path: str | PathLike[str], trust: bool = False, memory_budget: int | None = None
) -> tuple[Circuit, dict[Node, Array]]:
    """The circuit and the parameters of each Sum and Input, as `write_model` was given them, in views of one buffer.

    trust: take a file that needs more than ten times its size in memory, too. memory_budget: bytes for reading and
    compiling the circuit, parameters included.
    """
    with _opened(path) as file:
        size = os.path.getsize(path)
        check_memory(path, size, (), memory_budget)
        structure = _verified(file.metadata(), size, trust)[0]
        records = _listed(structure, "nodes")
        wanted = _tensors(records)
        check_parts(structure, len(wanted), size, trust)
        arrays = read_arrays(path, wanted, trust)
        nodes = _nodes(records, arrays)
        parameters = _parameters(nodes, arrays)
        check_memory(path, size, nodes, memory_budget)
        check_cost(nodes, sum(array.nbytes for array in arrays.values()), size, trust)
        if _crc32(arrays.values()) != structure.get("tensors_crc32"):
            raise FileFormatError("the tensors do not match their checksum, the file is damaged")
        schema = Schema.from_json(structure["schema"]) if "schema" in structure else None
        return Circuit(_at(nodes, structure.get("roots"), "roots"), nodes, schema), parameters


def read_metadata(path: str | PathLike[str], trust: bool = False) -> dict[str, str]:
    """The `extra` text that was saved with the model; only the head of the file is read."""
    with _opened(path) as file:
        return _verified(file.metadata(), os.path.getsize(path), trust)[1]


def _crc32(parts: Iterable[Any]) -> int:
    """One checksum over all parts, bytes or contiguous arrays, in their order."""
    checksum = 0
    for part in parts:
        checksum = zlib.crc32(part, checksum)
    return checksum


# Writing: circuit -> records and arrays -> bytes -> file


def _file_content(arrays: Mapping[str, Array], metadata: Mapping[str, str], circuit: Circuit) -> bytes:
    """A safetensors file with its metadata in front, in their order: the library itself writes them in any order."""
    try:
        plain = save(dict(arrays))
    except SafetensorError as error:
        raise StructureError(f"{circuit!r} does not fit into a safetensors file: {error}") from error
    length = int.from_bytes(plain[:8], "little")
    tensors = plain[8 : 8 + length].strip()[1:]
    head = b'{"__metadata__":' + json.dumps(metadata, separators=(",", ":")).encode()
    head += (b"," if tensors != b"}" else b"") + tensors
    head += b" " * (-len(head) % 8)  # tensors begin at a multiple of 8
    if len(head) > MAX_HEADER:
        raise StructureError(
            f"{circuit!r} does not fit into a safetensors file: its header has {counted(len(head), 'byte')}"
        )
    return b"".join((len(head).to_bytes(8, "little"), head, memoryview(plain)[8 + length :]))


def _record(node: Node, position: Mapping[Node, int], circuit: Circuit) -> Record:
    record: Record = {"kind": type(node).__name__.lower(), "units": int(node.units)}
    if isinstance(node, Input):
        if FAMILIES.get(node.family.name) is not type(node.family):
            hint = f"call circurve.register_family({type(node.family).__name__}) first"
            raise StructureError(f"{circuit.name_of(node)}: model files cannot hold the family {node.family!r}; {hint}")
        record |= {"variable": int(node.variable), "family": family_to_json(node.family)}
    else:
        record["children"] = [position[child] for child in node.children]
    if isinstance(node, Product) and any(chosen is not None for chosen in node.select):
        record["select"] = [place for place, chosen in enumerate(node.select) if chosen is not None]
    if isinstance(node, Sum) and node.mask is not None:
        record["mask"] = True
    if node.name is not None:
        record["name"] = str(node.name)
    return record


def _arrays(circuit: Circuit, parameters: Mapping[Node, Tensor]) -> dict[str, Array]:
    """Every tensor of the file by its name, in the order of the nodes."""
    arrays: dict[str, Array] = {}
    for index, node in enumerate(circuit.nodes):
        if isinstance(node, Product):
            for place, chosen in enumerate(node.select):
                if chosen is not None:
                    arrays[f"select.{index}.{place}"] = np.ascontiguousarray(chosen)
            continue
        arrays[_parameter_name(index, node)] = _given(node, parameters.get(node), circuit)
        if isinstance(node, Sum) and node.mask is not None:
            arrays[f"mask.{index}"] = np.ascontiguousarray(node.mask)
    owners = {node for node in circuit.nodes if not isinstance(node, Product)}
    for node in parameters:
        if node not in owners:
            raise ParameterError(f"{node!r} is not a sum or an input of this circuit")
    return arrays


def _parameter_name(index: int, node: Input | Sum) -> str:
    return f"{'weights' if isinstance(node, Sum) else 'parameters'}.{index}"


def _parameter_shape(node: Input | Sum) -> tuple[int, int]:
    return node.units, node.child_units if isinstance(node, Sum) else node.family.parameter_count


def _given(node: Input | Sum, values: Tensor | None, circuit: Circuit) -> Array:
    if values is None:
        raise ParameterError(f"{circuit.name_of(node)}: no parameters given")
    if values.dtype not in (torch.float32, torch.float64):
        raise ParameterError(f"{circuit.name_of(node)}: model files hold float32 and float64, not {values.dtype}")
    if tuple(values.shape) != _parameter_shape(node):
        shapes = f"{tuple(values.shape)}, expected {_parameter_shape(node)}"
        raise ParameterError(f"{circuit.name_of(node)}: parameters have shape {shapes}")
    array: Array = values.detach().cpu().contiguous().numpy()
    return array


def _checked_extra(extra: Mapping[str, str] | None) -> dict[str, str]:
    for key, value in (extra or {}).items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise OptionError(f"extra must map text to text, not {key!r} to {value!r}")
    return dict(extra or {})


# Reading: file -> checked texts -> arrays and nodes -> circuit


@contextmanager
def _opened(path: str | PathLike[str]) -> Iterator[Any]:
    """An open safetensors file; whatever is wrong with its content becomes a FileFormatError that names it."""
    _check_readable(path)
    try:
        with safe_open(path, framework="np") as file:
            yield file
    except SafetensorError as error:
        raise FileFormatError(f"{os.fspath(path)}: not a safetensors file, or damaged ({error})") from error
    except (FileFormatError, StructureError) as error:
        parts = (cut(part) if isinstance(part, str) else part for part in error.parts)
        raise FileFormatError(f"{os.fspath(path)}: ", *parts) from error
    except RecursionError as error:
        raise FileFormatError(f"{os.fspath(path)}: the structure is nested too deeply") from error
    except OSError as error:
        raise FileAccessError(f"cannot read {os.fspath(path)}: {reason_of(error)}") from error


def _check_readable(path: str | PathLike[str]) -> None:
    """Raise the errors of opening a file here: safetensors would report them in words of its own."""
    try:
        refuse_special(os.fspath(path))
        with open(path, "rb") as file:
            empty = not file.read(1)
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        raise FileAccessError(f"cannot read {os.fspath(path)}: {reason_of(error)}") from error
    if empty:
        raise FileFormatError(f"{os.fspath(path)}: the file is empty")


def _verified(metadata: Mapping[str, str] | None, size: int, trust: bool) -> tuple[Record, dict[str, str]]:
    """The structure and the extra text, once format, version and checksum are right."""
    if metadata is None or "circurve" not in metadata:
        raise FileFormatError("not a Circurve model: its metadata have no entry 'circurve'")
    structure = _parsed("circurve", metadata["circurve"], size, trust)
    version = structure.get("version")
    if structure.get("format") != "circurve" or not _is_position(version) or version == 0:
        raise FileFormatError("not a Circurve model, or damaged: no format name and version")
    if version > FORMAT_VERSION:
        readable = f"format {version}, this one reads up to {FORMAT_VERSION}"
        raise FileFormatError(f"written by a newer version of Circurve ({readable})")
    extra = _parsed("extra", metadata.get("extra", ""), size, trust)
    texts = (metadata["circurve"].encode(), metadata["extra"].encode())
    if metadata.get("crc32") != str(_crc32(texts)):
        raise FileFormatError("the metadata do not match their checksum, the file is damaged")
    if not all(isinstance(value, str) for value in extra.values()):
        raise FileFormatError("the metadata entry 'extra' does not map text to text")
    return structure, extra


def _parsed(entry: str, text: str, size: int, trust: bool) -> Record:
    try:
        document = parse_json(text, size, trust)
    except FileFormatError:
        raise
    except ValueError as error:
        raise FileFormatError(f"the metadata entry '{entry}' is not valid JSON ({error})") from error
    if not isinstance(document, dict):
        raise FileFormatError(f"the metadata entry '{entry}' is not a JSON object")
    return document


def _is_position(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= MAX_POSITION  # the type: True is an int, too


def _listed(record: Record, key: str) -> list[Any]:
    if not isinstance(record.get(key), list):
        raise FileFormatError(f"{key!r} must be a list")
    listed: list[Any] = record[key]
    return listed


def _at(nodes: Sequence[Node], positions: object, key: str) -> list[Node]:
    """The nodes at these positions; only earlier nodes are there, so no file can describe a cycle."""
    count, listed = len(nodes), positions if type(positions) is list else [None]
    found = [nodes[position] for position in listed if type(position) is int and 0 <= position < count]
    if len(found) < len(listed):
        raise FileFormatError(f"{key!r} must list positions of earlier nodes")
    return found


def _tensors(records: Sequence[Any]) -> dict[str, tuple[str, ...]]:
    """The tensors that the structure asks for, in its order, and the dtypes that each may have."""
    wanted: dict[str, tuple[str, ...]] = {}
    for index, record in enumerate(records):
        kind = record.get("kind") if isinstance(record, dict) else None
        if kind == "input":
            wanted[f"parameters.{index}"] = FLOATS
        elif kind == "sum":
            wanted[f"weights.{index}"] = FLOATS
            if record.get("mask"):
                wanted[f"mask.{index}"] = ("BOOL",)
        elif kind == "product":
            places = _listed(record, "select") if "select" in record else ()
            children = len(_listed(record, "children"))
            for place in places:
                if not _is_position(place) or place >= children:
                    raise FileFormatError(f"node {index}: 'select' must list places among {children} children")
                wanted[f"select.{index}.{place}"] = ("I64",)
        else:
            raise FileFormatError(f"node {index} is not an input, a product or a sum")
    return wanted


def _nodes(records: Sequence[Record], arrays: Mapping[str, Array]) -> list[Node]:
    """One node for each record."""
    nodes: list[Node] = []
    read_family = family_reader()
    for index, record in enumerate(records):
        try:
            if record["kind"] == "input":
                nodes.append(_input(record, len(records), read_family))
            else:
                nodes.append(_inner(record, nodes, arrays))
        except (FileFormatError, StructureError) as error:
            raise FileFormatError(f"node {index}: ", *error.parts) from error
    return nodes


def _name_and_units(record: Record) -> tuple[str | None, int]:
    name, units = record.get("name"), record.get("units")
    if name is not None and type(name) is not str:
        raise FileFormatError(f"'name' must be text, not {shortened(name)}")
    if type(units) is not int or not 0 <= units <= MAX_POSITION:  # the type: True is an int, too
        raise FileFormatError(f"'units' must be a whole number, not {shortened(units)}")
    return name, units


def _input(record: Record, total: int, read_family: Callable[[Any], Family]) -> Input:
    """An input of a file with `total` nodes."""
    (name, units), variable = _name_and_units(record), record.get("variable")
    # Every column needs an input, so a larger number is wrong; a huge one would make the scopes fill the memory.
    if not _is_position(variable) or variable >= total:
        raise FileFormatError(f"'variable' must be a column number, not {shortened(variable)}")
    return Input(variable, read_family(record.get("family", {})), units, name)


def _inner(record: Record, nodes: Sequence[Node], arrays: Mapping[str, Array]) -> Sum | Product:
    """The sum or product that comes after `nodes`."""
    (name, units), index = _name_and_units(record), len(nodes)
    children = _at(nodes, record.get("children"), "children")
    if record["kind"] == "sum":
        return Sum(children, units, arrays[f"mask.{index}"] if record.get("mask") else None, name)
    select = None
    if "select" in record:
        select = [arrays.get(f"select.{index}.{place}") for place in range(len(children))]
    product = Product(children, select, name)
    if product.units != units:
        raise FileFormatError(f"a product of {product.units} units declares {units}")
    return product


def _parameters(nodes: Sequence[Node], arrays: Mapping[str, Array]) -> dict[Node, Array]:
    parameters: dict[Node, Array] = {}
    for index, node in enumerate(nodes):
        if isinstance(node, Product):
            continue
        name = _parameter_name(index, node)
        array = parameters[node] = arrays[name]
        if array.shape != _parameter_shape(node):
            raise FileFormatError(f"the tensor {name!r} has shape {array.shape}, expected {_parameter_shape(node)}")
    return parameters
