"""A device that computes on the CPU and behaves like another one: `with pretended_gpu.present(): tensor.to("pretend")`.

A tensor on it cannot be mixed with one on the CPU, nor become an array, so mistakes that would only show on a GPU show
without one. It has no kernels of its own: circuits are computed by the readable backend.

Torch keeps such a device for the rest of the process, so tests use it in a process of their own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import backend_registration
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import circurve.model
from circurve.engine import memory
from circurve.learning import need

NAME = "pretend"

TAKES_BOTH = {"copy_", "_to_copy", "_copy_from"}
"""Operations that copy from one device to another."""

INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations whose indices may be on the CPU, if what they index is not."""

BY_DEVICE = (memory.MIN_FREE_BYTES, need.COPIES, need.BEST_COPIES, need.DRAWN)
"""What the package knows by the type of a device."""


class There(torch.Tensor):
    """A tensor on the device; `here` are its values."""

    here: torch.Tensor

    @staticmethod
    def __new__(cls, here: torch.Tensor) -> There:
        layout = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        made: There = torch.Tensor._make_wrapper_subclass(cls, here.shape, device=torch.device(NAME, 0), **layout)
        made.here = here
        return made

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy  # type: ignore[assignment]

    def tolist(self) -> Any:
        return self.here.tolist()  # as a GPU does, and torch refuses for subclasses


def _here(value: Any) -> Any:
    return value.here if isinstance(value, There) else value


def _run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name = operation.overloadpacket.__name__
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    there = [tensor for tensor in tensors if isinstance(tensor, There)]
    asked = kwargs.get("device")
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if there and name not in TAKES_BOTH:
        checked = tensors if name not in INDEXES or not isinstance(args[0], There) else []
        if any(not isinstance(tensor, There) and tensor.ndim for tensor in checked):
            raise RuntimeError(f"{operation} was called with tensors on {NAME}:0 and on the CPU")
    found = operation(*tree_map(_here, args), **tree_map(_here, kwargs))
    if operation._schema.is_mutable and name.endswith("_"):
        return args[0]
    if (torch.device(asked).type == "cpu") if asked is not None else not there:
        return found
    return tree_map(lambda value: There(value) if isinstance(value, torch.Tensor) else value, found)


class _Operations(TorchDispatchMode):
    """Makes tensors there where the device is asked for."""

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(operation, args, kwargs or {})


class _Makers(TorchFunctionMode):
    """torch.tensor and torch.as_tensor fill their memory without an operation that could be caught."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = dict(kwargs or {})
        if function in (torch.tensor, torch.as_tensor):
            device = options.pop("device", None)
            made = function(*args, **options)
            return made if device is None else made.to(device)
        return function(*args, **options)


class _Generator(torch.Generator):
    """Draws on the CPU and says that it is on the device it was made for."""

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls, "cpu")
        made._device = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:
        return self._device


class _Module(backend_registration._DummyBackendModule):
    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16]


def _copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _here(target).copy_(_here(source))
    return target


def register() -> Any:
    """Make the device known to torch and to the package. Returns what must be kept as long as it is used."""
    backend_registration._setup_privateuseone_for_python_backend(NAME, _Module())
    library = torch.library.Library("aten", "IMPL")
    library.impl(
        "empty.memory_format", lambda size, dtype=None, **_: There(torch.empty(size, dtype=dtype)), "PrivateUse1"
    )
    library.impl(
        "empty_strided",
        lambda size, stride, dtype=None, **_: There(torch.empty_strided(size, stride, dtype=dtype)),
        "PrivateUse1",
    )
    library.impl("_copy_from", _copy, "PrivateUse1")
    for table in BY_DEVICE:
        table[NAME] = table["cuda"]  # type: ignore[index]
    _accept_the_name()
    torch.Generator = _Generator  # type: ignore[misc]
    return library


def _accept_the_name() -> None:
    known = circurve.model.as_device

    def as_device(device: Any) -> torch.device:
        return torch.device(NAME, 0) if str(device).startswith(NAME) else known(device)

    for name, module in list(sys.modules.items()):
        if name.startswith("circurve") and getattr(module, "as_device", None) is known:
            module.as_device = as_device  # type: ignore[attr-defined]


@contextmanager
def present() -> Iterator[None]:
    """While it is active, tensors can be made on the device and moved to it."""
    with _Makers(), _Operations():
        yield
