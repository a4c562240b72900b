"""Archives of torch.save and LibTorch: the values are PyTorch's own, one tensor at a time."""

from __future__ import annotations

import argparse
import decimal
import struct
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpt_onnx.checkpoint.archive import (
    Inert,
    LazyTensor,
    flatten,
    is_archive,
    odd_tensors,
    read_archive,
    state_dict_of,
)
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.errors import CheckpointError

BASE = torch.arange(-17, 18, dtype=torch.float32).reshape(5, 7) / 3
TENSORS = {
    "float32": BASE,
    "float64": BASE.double() / 7,
    "float16": BASE.half(),
    "bfloat16": BASE.bfloat16(),
    "int64": torch.arange(3),
    "int32": torch.arange(3, dtype=torch.int32),
    "uint8": torch.get_rng_state(),
    "bool": BASE > 0,
    "scalar": torch.tensor(2.5),
    "empty": torch.zeros(0, 3),
    "turned": BASE.T,
    "part": BASE[2:, 3:],
    "every other": BASE[::2],
    "parameter": torch.nn.Parameter(BASE + 1),
}


def numpy_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_values_are_those_that_torch_saved(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "all.pt"
    torch.save({"model": TENSORS}, path, _use_new_zipfile_serialization=zipped)
    archive = read_archive(path)
    assert archive.kind == "torch"
    found = state_dict_of(archive.root["model"], path, "model")  # type: ignore[index]
    assert list(found) == list(TENSORS)
    for name, tensor in TENSORS.items():
        values, expected = archive.read(found[name]), numpy_of(tensor)
        assert values.dtype == expected.dtype
        np.testing.assert_array_equal(values, expected)
        assert values.flags.c_contiguous
        assert values.flags.writeable


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_every_pickle_protocol_is_read(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "all.pt"
    torch.save(
        {"a": BASE, "n": -5, "big": 2**40, "t": ("é", b"\0", 1.5, None, {1})}, path, pickle_protocol=protocol
    )
    archive = read_archive(path)
    root: Any = archive.root
    np.testing.assert_array_equal(archive.read(root["a"]), BASE.numpy())
    assert (root["n"], root["big"], root["t"][0], root["t"][2:4]) == (-5, 2**40, "é", (1.5, None))


def test_tied_tensors_share_memory_and_copies_do_not(tmp_path: Path) -> None:
    path = tmp_path / "tied.pt"
    torch.save({"a": BASE, "b": BASE, "c": BASE.clone()}, path)
    root: Any = read_archive(path).root
    assert root["a"].same_memory(root["b"])
    assert not root["a"].same_memory(root["c"])


def test_values_of_foreign_classes_do_not_prevent_reading(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    foreign = {
        "args": argparse.Namespace(lr=1e-3),
        "loss": np.float64(3.5),
        "price": decimal.Decimal(3),
        "device": torch.device("cpu"),
        "dtype": torch.float16,
        "path": tmp_path,
        "set": {1, 2},
        "sparse": BASE.to_sparse(),
        "complex": BASE.to(torch.complex64),
        "float8": BASE.to(torch.float8_e4m3fn),
        "wide": torch.ones(1).expand(10**6),
        "random": __import__("random").getstate(),
    }
    torch.save({"model": {"a": BASE}, **foreign}, path)
    archive = read_archive(path)
    root: Any = archive.root
    np.testing.assert_array_equal(archive.read(root["model"]["a"]), BASE.numpy())
    assert isinstance(root["args"], Inert)
    assert root["args"].of == "argparse.Namespace"


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (BASE.to_sparse(), "a sparse tensor"),
        (BASE.to(torch.complex64), "ComplexFloatStorage"),
        (BASE.to(torch.float8_e4m3fn), "a dtype without a storage type"),
        (torch.ones(1).expand(10**6), "whose elements overlap"),
        (torch.empty(3, device="meta"), "the device meta"),
        (torch._neg_view(BASE), "a negated view"),
        (decimal.Decimal(3), "an object of the class decimal.Decimal, which is not opened"),
        (3, "a value of type int"),
    ],
    ids=["sparse", "complex", "float8", "expanded", "meta", "negated", "class", "number"],
)
def test_weights_of_another_kind_are_refused_by_name(tmp_path: Path, value: object, said: str) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save({"h.0.weight": value}, path)
    with pytest.raises(CheckpointError, match=rf"{said}.*h\.0\.weight"):
        state_dict_of(read_archive(path).root, path)


def test_a_module_saved_whole_is_not_opened_and_the_remedy_is_named(tmp_path: Path) -> None:
    path = tmp_path / "module.pt"
    torch.save(torch.nn.Linear(2, 2), path)
    with pytest.raises(
        CheckpointError, match=r"class torch\.nn\..*\.Linear, which is not opened.*state_dict\(\)"
    ):
        state_dict_of(read_archive(path).root, path)


def scripted(path: Path) -> torch.nn.Module:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Linear(3, 3, bias=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(torch.jit.script(module), path)
    return module


def test_modules_of_torchscript_are_read_by_their_paths(tmp_path: Path) -> None:
    path = tmp_path / "script.pt"
    module = scripted(path)
    archive = read_archive(path)
    tensors = flatten(archive.root, path)
    assert archive.kind == "script"
    assert list(tensors) == list(module.state_dict())
    for name, tensor in module.state_dict().items():
        np.testing.assert_array_equal(archive.read(tensors[name]), tensor.numpy())


def test_code_is_never_opened(tmp_path: Path) -> None:
    path = tmp_path / "script.pt"
    scripted(path)
    with zipfile.ZipFile(path) as file:
        code = [info for info in file.infolist() if "/code/" in info.filename]
    data = bytearray(path.read_bytes())
    for info in code:  # whatever stands there
        start = info.header_offset + 30 + len(info.filename.encode())
        data[start : start + info.compress_size] = b"\xff" * info.compress_size
    path.write_bytes(data)
    assert code
    assert len(flatten(read_archive(path).root, path)) == 3


def test_tensors_that_cannot_be_read_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "odd.pt"
    torch.save({"a": BASE, "b": {"c": BASE.to(torch.complex64), "d": BASE.to_sparse()}, "e": "text"}, path)
    root = read_archive(path).root
    assert list(flatten(root, path)) == ["a"]
    assert odd_tensors(root, path).keys() == {"b.c", "b.d"}
    assert odd_tensors(root, path)["b.d"] == "a sparse tensor"


def test_names_of_any_length_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "long.pt"
    torch.save({"x" * 600: {"y" * 600: BASE}}, path)
    with pytest.raises(CheckpointError, match="names of more than 1000 characters"):
        flatten(read_archive(path).root, path)


def test_a_store_lists_floats_and_reads_them_by_name(tmp_path: Path) -> None:
    path = tmp_path / "ckpt.pt"
    torch.save({"a": BASE.bfloat16(), "mask": BASE > 0, "ids": torch.arange(3)}, path)
    store = TorchStore(path, state_dict_of(read_archive(path).root, path))
    assert list(store.tensors) == ["a"]
    assert store.tensors["a"].dtype == "BF16"
    np.testing.assert_array_equal(store.read("a"), BASE.bfloat16().float().numpy())


def zip64_of(path: Path, pickle: bytes, small: bytes, large_size: int) -> None:
    """Write an archive with a storage "0" and a sparse storage "1" of any size, with the fields of zip64."""
    import zlib

    members = [
        ("a/data.pkl", pickle, len(pickle)),
        ("a/data/0", small, len(small)),
        ("a/data/1", b"", large_size),
    ]
    directory = b""
    with path.open("wb") as file:
        for name, data, size in members:
            offset = file.tell()
            file.write(struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, 0, 0, 0, 0, 0, 0, 0, len(name), 0))
            file.write(name.encode() + data)
            file.seek(size - len(data), 1)
            extra = struct.pack("<2H3Q", 1, 24, size, size, offset)
            header = (b"PK\x01\x02", 20, 0, 20, 0, 0, 0, 0, 0, zlib.crc32(data), 2**32 - 1, 2**32 - 1)
            tail = (len(name), len(extra), 0, 0, 0, 0, 2**32 - 1)
            directory += struct.pack("<4s4B4HL2L5H2L", *header, *tail) + name.encode() + extra
        start = file.tell()
        file.write(directory)
        end = file.tell()
        count = len(members)
        file.write(
            struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), start)
        )
        file.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        file.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(directory), 2**32 - 1, 0))


def tensor_pickle(counts: dict[str, int]) -> bytes:
    """A dict of float32 vectors, each with a storage of its own."""
    items = b""
    for key, count in counts.items():
        text = b"X" + struct.pack("<I", len(key)) + key.encode()
        size = b"\x8a\x08" + struct.pack("<q", count)
        storage = (
            b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\n" + text + b"X\x03\x00\x00\x00cpu" + size + b"tQ"
        )
        tensor = b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + b"K\x00" + size + b"\x85K\x01\x85\x89}tR"
        items += text + tensor
    return b"\x80\x02}(" + items + b"u."


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="counts bytes as Linux does")
def test_one_weight_of_a_large_file_is_read_alone(tmp_path: Path) -> None:
    path, large = tmp_path / "large.pt", 6 << 30
    small = np.arange(5, dtype=np.float32)
    zip64_of(path, tensor_pickle({"0": 5, "1": large // 4}), small.tobytes(), large)
    assert path.stat().st_size > large
    before = bytes_read()
    archive = read_archive(path)
    root: Any = archive.root
    assert root["1"].shape == (large // 4,)
    np.testing.assert_array_equal(archive.read(root["0"]), small)
    assert bytes_read() - before < 200_000


def test_what_is_no_archive_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    assert not is_archive(path)
    path.write_bytes(b"hello")
    assert not is_archive(path)
    with pytest.raises(CheckpointError, match=r"is not a file that torch\.save or LibTorch wrote"):
        read_archive(path)
    torch.save({"a": BASE}, path)
    assert is_archive(path)
    root: Any = read_archive(path).root
    assert isinstance(root["a"], LazyTensor)
