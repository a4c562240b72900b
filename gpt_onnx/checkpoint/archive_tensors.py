"""What the calls of a checkpoint's pickle mean: tensors that are still on the disk, and nothing else.

The table ``CALLS`` is complete: a tensor is a view of a storage, held against the storage's size at once, and
every call outside of the table gives an ``Inert`` value under its name.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.checkpoint.archive_machine import Inert, Named, PickleFault
from gpt_onnx.checkpoint.archive_zip import Extent

STORAGE_DTYPES: Mapping[str, str] = {
    "DoubleStorage": "F64",
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
"""PyTorch's storages of real numbers."""
ITEM_SIZES: Mapping[str, int] = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
OTHER_STORAGES: Mapping[str, int] = {
    "ComplexFloatStorage": 8,
    "ComplexDoubleStorage": 16,
    "QInt8Storage": 1,
    "QUInt8Storage": 1,
    "QInt32Storage": 4,
}
"""Bytes per element of storages that no weight is in."""
MAX_DIMS = 64
MAX_NUMBER = 2**63 - 1

UNSUPPORTED: Mapping[str, str] = {
    "torch._utils._rebuild_sparse_tensor": "a sparse tensor",
    "torch._utils._rebuild_sparse_csr_tensor": "a sparse tensor",
    "torch._utils._rebuild_nested_tensor": "a nested tensor",
    "torch._utils._rebuild_qtensor": "a quantized tensor",
    "torch._utils._rebuild_meta_tensor_no_storage": "a tensor on the device meta, without values",
    "torch._utils._rebuild_device_tensor_from_numpy": "a tensor of a device that stores NumPy arrays",
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": "a tensor of a device without storages",
    "torch._utils._rebuild_tensor_v3": "a tensor of a dtype without a storage type of its own",
    "torch._utils._rebuild_wrapper_subclass": "a tensor of a class of its own",
}
"""Tensors that no weight of a GPT is; how a message calls them."""

# fmt: off
RUNNING_MODULES = frozenset(
    {
        "os", "posix", "nt", "subprocess", "sys", "shutil", "socket", "importlib", "imp", "runpy",
        "pty", "pickle", "_pickle", "marshal", "code", "codeop", "ctypes", "commands", "webbrowser",
        "urllib.request", "multiprocessing", "threading", "signal", "timeit", "pdb", "bdb", "pip",
    }
)
# fmt: on
# fmt: off
HARMLESS_BUILTINS = frozenset(
    {
        "set", "frozenset", "dict", "list", "tuple", "int", "float", "str", "bytes", "bytearray",
        "bool", "complex", "slice", "range", "object", "getattr",
    }
)
# fmt: on
"""Of the module builtins; NumPy and enumerations name some of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Numbers on the disk that tensors are views of."""

    key: str
    """What the file calls it; tensors of one key share memory, as tied weights do."""
    dtype: str
    count: int
    extent: Extent | None
    """Its bytes; None until its place is known."""


@dataclass(frozen=True, slots=True, eq=False)
class LazyTensor:
    """A tensor whose values are still on the disk."""

    dtype: str
    """A key of ITEM_SIZES."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """Elements from one index to the next, in each dim."""
    offset: int
    """Its first element in the storage."""
    storage: Storage
    requires_grad: bool = False

    @property
    def count(self) -> int:
        """Its number of elements."""
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements of the storage from its first to its last, both included."""
        if not self.count:
            return 0
        return 1 + sum((size - 1) * step for size, step in zip(self.shape, self.stride, strict=True))

    def same_memory(self, other: LazyTensor) -> bool:
        """Whether it is the same view of the same storage: one tensor under two names."""
        return (self.storage.key, self.offset, self.shape, self.stride) == (
            other.storage.key,
            other.offset,
            other.shape,
            other.stride,
        )


def _numbers(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, tuple | list) or len(value) > MAX_DIMS:
        raise PickleFault(f"has a tensor whose {what} is not a short tuple of numbers")
    if not all(type(item) is int and 0 <= item <= MAX_NUMBER for item in value):
        raise PickleFault(f"has a tensor with a {what} that is negative or no number")
    return tuple(value)


def _overlaps(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    """Whether two elements may share a place, as those of an expanded tensor do."""
    reach = 0
    for step, size in sorted((step, size) for size, step in zip(shape, stride, strict=True) if size > 1):
        if step <= reach:
            return True
        reach += (size - 1) * step
    return False


def _tensor(storage: object, offset: object, shape: object, stride: object, *rest: object) -> object:
    """Return a view of a storage; what reaches beyond it is refused."""
    if isinstance(storage, Inert):
        return storage
    if not isinstance(storage, Storage):
        raise PickleFault("has a tensor without a storage")
    (first,) = _numbers((offset,), "offset")
    sizes, steps = _numbers(shape, "shape"), _numbers(stride, "stride")
    if len(sizes) != len(steps):
        raise PickleFault(f"has a tensor of {len(sizes)} dims with {len(steps)} strides")
    if any(isinstance(value, dict) and value for value in rest[2:]):  # behind requires_grad and hooks
        return Inert("a tensor that is a negated view of what is stored")
    grad = bool(rest and rest[0] is True)
    tensor = LazyTensor(storage.dtype, sizes, steps, first, storage, grad)
    if first + tensor.span > storage.count:
        raise PickleFault(
            f"has a tensor of shape {list(sizes)} that needs {first + tensor.span} elements of the storage "
            f"{storage.key!r}, which has {storage.count}"
        )
    return Inert("a tensor whose elements overlap") if _overlaps(sizes, steps) else tensor


def _parameter(data: object, requires_grad: object = True, *_: object) -> object:
    if isinstance(data, LazyTensor):
        return dataclasses.replace(data, requires_grad=requires_grad is True)
    return data


def _of_type(function: object, kind: object, args: object, *_: object) -> object:
    """Return a tensor that has attributes of its own, which are left out; another class stays inert."""
    plain = isinstance(kind, Named) and str(kind) in PLAIN_TENSORS
    if plain and isinstance(function, Named) and isinstance(args, tuple) and str(function) in CALLS:
        return CALLS[str(function)](*args)
    return Inert(f"a tensor of the class {kind}")


def _dict(pairs: object = None, *_: object) -> object:
    """Return a dict of pairs, which Python 2 gave as lists; OrderedDict() and defaultdict(list) have none."""
    if not isinstance(pairs, list):
        return {}
    if not all(isinstance(pair, list | tuple) and len(pair) == 2 and type(pair[0]) is str for pair in pairs):
        return Inert("collections.OrderedDict")
    return dict(pairs)


def _first(*args: object) -> object:
    return args[0]


def _size(values: object = ()) -> object:
    return tuple(values) if isinstance(values, tuple | list) else Inert("torch.Size")


PLAIN_TENSORS = ("torch.Tensor", "torch.nn.parameter.Parameter")
CALLS: Mapping[str, Callable[..., object]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._tensor._rebuild_from_type_v2": _of_type,
    "torch.Size": _size,
    "collections.OrderedDict": _dict,
    "collections.defaultdict": _dict,
    "torch.jit._pickle.build_intlist": _first,
    "torch.jit._pickle.build_doublelist": _first,
    "torch.jit._pickle.build_boollist": _first,
    "torch.jit._pickle.build_tensorlist": _first,
    "torch.jit._pickle.restore_type_tag": _first,
}


@dataclass(frozen=True, slots=True)
class TensorBuilder:
    """A builder of tensors; ``locate`` finds a storage by its key, elements and bytes of each."""

    locate: Callable[[str, int, int], Extent | None]

    def name(self, named: Named) -> object:
        """See Builder: what would run a program elsewhere is refused, to warn of the file."""
        package = named.module.partition(".")[0]
        hostile = package in RUNNING_MODULES or named.module in RUNNING_MODULES
        builtin = named.module in ("builtins", "__builtin__") and named.name not in HARMLESS_BUILTINS
        if hostile or builtin:
            raise PickleFault(
                f"would run {str(named)[:200]} if it were loaded by Python; nothing was run, "
                "and it should not be trusted"
            )
        return named

    def call(self, named: Named, args: tuple[Any, ...]) -> object:
        """See Builder."""
        known = CALLS.get(str(named))
        if known is None:
            return Inert(UNSUPPORTED.get(str(named), str(named)))
        return known(*args)

    def persistent(self, identity: object) -> object:
        """See Builder: ("storage", its class, key, device, count), and a view in old files, always None."""
        if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
            raise PickleFault("refers to something outside that is not a storage")
        kind, key, device, count = identity[1:5]
        if not isinstance(kind, Named) or not isinstance(key, str) or identity[5:] not in ((), (None,)):
            raise PickleFault("has a storage that is described in another way than PyTorch's")
        (count,) = _numbers((count,), "storage")
        if kind.module not in ("torch", "torch.storage"):
            raise PickleFault(f"has a storage of the class {str(kind)[:200]}, which is not PyTorch's")
        if device == "meta":
            return Inert("a tensor on the device meta, without values")
        if kind.name not in STORAGE_DTYPES:
            if size := OTHER_STORAGES.get(kind.name):
                self.locate(key, count, size)
            return Inert(f"a tensor of the storage type {kind}")
        dtype = STORAGE_DTYPES[kind.name]
        return Storage(key, dtype, count, self.locate(key, count, ITEM_SIZES[dtype]))
