"""GGUF headers written byte by byte: what is read, and that whatever is wrong is told in a sentence."""

from __future__ import annotations

import builtins
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.checkpoint.gguf_file import read_header
from gpt_onnx.checkpoint.gguf_metadata import Keys, decimal
from gpt_onnx.checkpoint.gguf_store import GgufStore
from gpt_onnx.errors import CheckpointError, GptOnnxError, InputError

U32, F32, TEXT, ARRAY, U64 = 4, 6, 8, 9, 10


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def entry(name: str, sizes: list[int], kind: int = 0, offset: int = 0) -> bytes:
    dims = struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
    return text(name) + dims + struct.pack("<IQ", kind, offset)


def file_of(
    keys: list[bytes],
    entries: list[bytes],
    data: bytes = b"",
    *,
    counts: tuple[int, int] | None = None,
    start: bytes = b"GGUF" + struct.pack("<I", 3),
) -> bytes:
    head = start + struct.pack("<QQ", *(counts or (len(entries), len(keys)))) + b"".join(keys + entries)
    return head + b"\0" * (-len(head) % 32) + data


@pytest.fixture
def written(tmp_path: Path) -> Callable[[bytes], Path]:
    """Writes a file."""

    def write(data: bytes) -> Path:
        path = tmp_path / "model.gguf"
        path.write_bytes(data)
        return path

    return write


Writer = Callable[[bytes], Path]


def test_values_of_every_kind_are_read(written: Writer) -> None:
    keys = [
        key("a", 0, b"\x07"),
        key("b", 5, struct.pack("<i", -3)),
        key("c", F32, struct.pack("<f", 1e-5)),
        key("d", 7, b"\x01"),
        key("e", TEXT, text("ä b")),
        key("f", ARRAY, struct.pack("<IQ", TEXT, 2) + text("x") + text("")),
        key("g", ARRAY, struct.pack("<IQ2i", 5, 2, 1, -1)),
        key("h", U64, struct.pack("<Q", 2**40)),
        key("i", 12, struct.pack("<d", 0.1)),
    ]
    found = dict(read_header(written(file_of(keys, []))).metadata)
    assert found.pop("g").tolist() == [1, -1]
    assert decimal(found.pop("c")) == 1e-5
    assert found == {"a": 7, "b": -3, "d": True, "e": "ä b", "f": ["x", ""], "h": 2**40, "i": 0.1}


def test_tensors_are_read_where_they_lie(written: Writer) -> None:
    first, second = np.arange(6, dtype="<f4").reshape(2, 3), np.array([1.5, -2.0], "<f2")
    data = first.tobytes() + b"\0" * 8 + second.tobytes()
    store = GgufStore(written(file_of([], [entry("a", [3, 2]), entry("b", [2], 1, 32)], data)))
    assert store.tensors["a"].shape == (2, 3)
    assert np.array_equal(store.read("a"), first)
    assert np.array_equal(store.read("b"), second)


def test_the_alignment_may_be_another(written: Writer) -> None:
    keys = [key("general.alignment", U32, struct.pack("<I", 64))]
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + keys[0] + entry("a", [2])
    data = head + b"\0" * (-len(head) % 64) + np.array([1, 2], "<f4").tobytes()
    assert GgufStore(written(data)).read("a").tolist() == [1, 2]


A = entry("a", [2])
EIGHT = b"\0" * 8
FAULTS: dict[str, tuple[bytes, str]] = {
    "other letters": (b"GGML" + EIGHT * 4, "does not begin with GGUF"),
    "version 1": (file_of([], [], start=b"GGUF" + struct.pack("<I", 1)), "GGUF version 1; known are 2, 3"),
    "big-endian": (file_of([], [], start=b"GGUF" + struct.pack(">I", 3)), "big-endian"),
    "many tensors": (file_of([], [], counts=(2**60, 0)), f"claims {2**60} tensors and 0 keys"),
    "many keys": (file_of([], [], counts=(0, 2**63)), f"claims 0 tensors and {2**63} keys"),
    "keys beyond the end": (file_of([], [], counts=(0, 9)), "truncated or damaged"),
    "a long key": (file_of([struct.pack("<Q", 2**40)], []), f"a key has {2**40} bytes; at most 1024"),
    "a long text": (file_of([key("a", TEXT, struct.pack("<Q", 2**50))], []), f"has {2**50} bytes; at most"),
    "text that is none": (file_of([key("a", TEXT, struct.pack("<Q", 1) + b"\xff")], []), "not UTF-8"),
    "many texts": (
        file_of([key("a", ARRAY, struct.pack("<IQ", TEXT, 2**40))], []),
        f"claims {2**40} texts, more than the file can hold",
    ),
    "many numbers": (file_of([key("a", ARRAY, struct.pack("<IQ", 5, 2**61))], []), "truncated or damaged"),
    "arrays of arrays": (file_of([key("a", ARRAY, struct.pack("<IQ", ARRAY, 1))], []), "array of the type 9"),
    "no such type": (file_of([key("a", 77, b"")], []), "of the type 77, which GGUF does not have"),
    "a key twice": (file_of([key("a", 0, b"1")] * 2, []), "the key 'a' occurs twice"),
    "a tensor twice": (file_of([], [A, A], EIGHT), "the tensor a occurs twice"),
    "no dimension": (file_of([], [entry("a", [])]), "a has 0 dimensions"),
    "many dimensions": (file_of([], [text("a") + struct.pack("<I", 2**31)]), f"a has {2**31} dimensions"),
    "an empty tensor": (file_of([], [entry("a", [0])]), r"a has the dimensions \[0\] in F32"),
    "a huge tensor": (file_of([], [entry("a", [2**40, 2**40])]), "must fit into the"),
    "part of a block": (file_of([], [entry("a", [33], 8)], EIGHT * 20), "must be a multiple of 32"),
    "Q4_K": (
        file_of([], [entry("a", [256], 12)], EIGHT * 20),
        "a is stored as Q4_K; known are F32, F16, Q4_0",
    ),
    "integers": (file_of([], [entry("a", [2], 26)], EIGHT), "a is stored as I32; known are"),
    "an unknown type": (file_of([], [entry("a", [2], 999)], EIGHT), "a is stored as type 999"),
    "over one another": (file_of([], [A, entry("b", [2])], EIGHT * 9), "b would lie at bytes"),
    "beyond the end": (file_of([], [entry("a", [2], 0, 32)], EIGHT), "a would lie at bytes"),
    "far beyond the end": (file_of([], [entry("a", [2], 0, 2**64 - 32)], EIGHT), "a would lie at bytes"),
    "not aligned": (file_of([], [entry("a", [1], 0, 4)], EIGHT), "a would lie at bytes"),
    "a wrong alignment": (
        file_of([key("general.alignment", U32, struct.pack("<I", 3))], []),
        "general.alignment is 3; a power of two was expected",
    ),
    "no alignment": (file_of([key("general.alignment", TEXT, text("x"))], []), "general.alignment is x"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_is_told(name: str, written: Writer) -> None:
    data, said = FAULTS[name]
    path = written(data)
    with pytest.raises(CheckpointError, match=said) as caught:
        read_header(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert str(caught.value).endswith(".")


def test_every_truncation_is_told(written: Writer) -> None:
    keys = [key("a", TEXT, text("b")), key("c", ARRAY, struct.pack("<IQ", TEXT, 1) + text("d"))]
    whole = file_of(keys, [entry("a", [3, 2]), entry("b", [2], 1, 32)], b"\0" * 36)
    read_header(written(whole))
    for length in range(len(whole)):
        with pytest.raises(CheckpointError):
            read_header(written(whole[:length]))


def test_flipped_bytes_never_end_in_anything_but_a_sentence(written: Writer) -> None:
    keys = [key("general.architecture", TEXT, text("llama")), key("llama.block_count", U32, b"\1\0\0\0")]
    whole = bytearray(file_of(keys, [entry("a", [3, 2]), entry("b", [2], 1, 32)], b"\0" * 36))
    for place in range(len(whole)):
        for value in (0x00, 0x7F, 0xFF):
            damaged = bytearray(whole)
            damaged[place] = value
            with pytest.raises(GptOnnxError):
                read_checkpoint(written(bytes(damaged)))


def test_a_file_that_changes_is_told(written: Writer) -> None:
    path = written(file_of([], [A], EIGHT))
    store = GgufStore(path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(CheckpointError, match="a could not be read any more: the file has changed"):
        store.read("a")
    path.unlink()
    with pytest.raises(CheckpointError, match="a could not be read any more"):
        store.read("a")


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="could not be read: No such file"):
        read_header(tmp_path / "absent.gguf")


def test_without_the_gguf_package_the_command_that_installs_it_is_told(
    written: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "gguf":
            raise ImportError(name)
        return original(name, *args, **kwargs)

    store = GgufStore(written(file_of([], [entry("a", [32], 8)], b"\0" * 34)))
    monkeypatch.delitem(sys.modules, "gguf", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match=r'Q8_0 .* missing; pip install "gpt-onnx\[gguf\]"'):
        store.read("a")


@pytest.mark.parametrize("value", ["x", -1, 0, 2**40, 1.0, True, np.array([1, 2]), np.array(["a"]), []])
def test_a_count_is_an_integer_of_at_least_one(value: Any) -> None:
    keys = Keys(Path("m.gguf"), {"llama.block_count": value}, "llama")
    with pytest.raises(CheckpointError, match=r"^m\.gguf has llama\.block_count = .* was expected\.$"):
        keys.count("block_count")


def test_one_number_for_each_layer_counts_as_one_where_all_are_equal() -> None:
    keys = Keys(Path("m.gguf"), {"llama.heads": np.array([4, 4])}, "llama")
    assert keys.count("heads") == 4
    assert keys.count("others", 3) == 3
    with pytest.raises(CheckpointError, match=r"lacks llama\.others"):
        keys.count("others")


@pytest.mark.parametrize("value", ["x", True, float("nan"), float("inf"), []])
def test_a_number_is_finite(value: Any) -> None:
    with pytest.raises(CheckpointError, match="a number was expected"):
        Keys(Path("m.gguf"), {"llama.eps": value}, "llama").number("eps")


def test_keys_that_nobody_asked_for_are_refused() -> None:
    keys = Keys(Path("m.gguf"), {"llama.a": 1, "llama.b": 0.0, "llama.c": 2, "general.d": 4}, "llama")
    keys.count("a")
    keys.refuse_others({"b": (0.0,), "c": None})
    with pytest.raises(CheckpointError, match=r"has llama\.b = 0\.0, which changes what is computed"):
        keys.refuse_others({"b": (1.0,), "c": None})
