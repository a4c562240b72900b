"""Archives made to do harm: each is refused in a sentence, in a moment, and nothing of them runs."""

from __future__ import annotations

import os
import pickle
import re
import struct
import subprocess
import sys
import time
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpt_onnx.checkpoint.archive import flatten, read_archive, state_dict_of
from gpt_onnx.checkpoint.archive_machine import PickleFault
from gpt_onnx.checkpoint.archive_pickle import read_pickle
from gpt_onnx.checkpoint.archive_tensors import TensorBuilder
from gpt_onnx.checkpoint.recipe import Recipe, make_weight
from gpt_onnx.checkpoint.torch_store import TorchStore
from gpt_onnx.errors import CheckpointError

VALUES = np.arange(6, dtype=np.float32)


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)


def storage(*, kind: bytes = b"ctorch\nFloatStorage\n", key: str = "0", count: int = 6) -> bytes:
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + b"tQ"


def numbers(values: tuple[int, ...]) -> bytes:
    return b"(" + b"".join(map(number, values)) + b"t"


def tensor(
    *,
    shape: tuple[int, ...] = (2, 3),
    stride: tuple[int, ...] = (3, 1),
    offset: int = 0,
    memory: bytes | None = None,
) -> bytes:
    parts = (memory or storage()) + number(offset) + numbers(shape) + numbers(stride)
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + parts + b"\x89}tR"


def model(value: bytes) -> bytes:
    return b"\x80\x02}" + text("w") + value + b"s."


def beside(value: bytes) -> bytes:
    """A sound weight, and another value beside it."""
    return b"\x80\x02}(" + text("w") + tensor() + text("other") + value + b"u."


def write(path: Path, data: bytes, **members: bytes) -> Path:
    files = {"data.pkl": data, "version": b"3\n", "byteorder": b"little", "data/0": VALUES.tobytes()}
    with zipfile.ZipFile(path, "w") as file:
        for name, content in (files | members).items():
            file.writestr(zipfile.ZipInfo(f"archive/{name}"), content)  # of 1980: the same bytes at any time
    return path


def load(path: Path) -> dict[str, Any]:
    """All that a reader does: directory, pickle, tensors, values."""
    archive = read_archive(path)
    tensors = state_dict_of(archive.root, path)
    return {name: archive.read(tensor) for name, tensor in tensors.items()}


def load_one(path: Path) -> Any:
    """The weight "w", whatever else there is."""
    archive = read_archive(path)
    root: Any = archive.root
    return archive.read(root["w"])


def refused(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_the_sound_archive_is_read(tmp_path: Path) -> None:
    found = load(write(tmp_path / "x.pt", model(tensor())))
    np.testing.assert_array_equal(found["w"], VALUES.reshape(2, 3))


CANARY = "the-canary-that-must-not-be"
RUN = f"touch {CANARY}"
CODE = f"open({CANARY!r}, 'w').close()"

CALLS: dict[str, bytes] = {
    "os.system by GLOBAL and REDUCE": b"cos\nsystem\n(" + text(RUN) + b"tR",
    "posix.system by GLOBAL and REDUCE": b"cposix\nsystem\n(" + text(RUN) + b"tR",
    "os.system by STACK_GLOBAL": text("os") + text("system") + b"\x93(" + text(RUN) + b"tR",
    "os.system by NEWOBJ": b"cos\nsystem\n(" + text(RUN) + b"t\x81",
    "os.system by NEWOBJ_EX": b"cos\nsystem\n(" + text(RUN) + b"t}\x92",
    "subprocess.Popen": b"csubprocess\nPopen\n(" + text(RUN) + b"tR",
    "eval": b"cbuiltins\neval\n(" + text(CODE) + b"tR",
    "exec of Python 2's name": b"c__builtin__\nexec\n(" + text(CODE) + b"tR",
    "__import__": b"cbuiltins\n__import__\n(" + text("os") + b"tR",
    "runpy": b"crunpy\n_run_code\n(" + text(CODE) + b"}tR",
    "pickle in a pickle": b"cpickle\nloads\n(" + text("x") + b"tR",
    "INST": b"(" + text(RUN) + b"ios\nsystem\n",
    "OBJ": b"(cos\nsystem\n" + text(RUN) + b"o",
    "EXT1": b"\x82\x01",
    "EXT2": b"\x83\x01\x00",
    "EXT4": b"\x84\x01\x00\x00\x00",
    "persistent id as text": b"P0\n",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("place", [model, beside], ids=["as a weight", "beside the weights"])
def test_what_would_run_a_program_is_refused_and_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: bytes, place: Callable[[bytes], bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(write(tmp_path / "x.pt", place(call)))
    assert os.listdir(tmp_path) == ["x.pt"]


class Runs:
    """Runs a program when Python loads it; the test below shows that it does."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (self.command,)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_an_exploit_that_works_on_python_does_nothing_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int
) -> None:
    monkeypatch.chdir(tmp_path)
    data = pickle.dumps({"w": Runs(RUN)}, protocol)
    subprocess.run([sys.executable, "-c", f"import pickle; pickle.loads({data!r})"], check=True)
    assert (tmp_path / CANARY).exists()
    (tmp_path / CANARY).unlink()
    assert re.search(r"would run (os|posix|nt)\.system", refused(write(tmp_path / "x.pt", data)))
    assert not (tmp_path / CANARY).exists()


UNKNOWN: dict[str, bytes] = {
    "a module that does not exist": b"cno.such.module\nThing\n(" + text("x") + b"tR",
    "__setstate__ by BUILD": b"cevil\nThing\n)\x81}" + text("__setstate__") + text(CODE) + b"sb",
    "attributes of a class by BUILD": b"ccollections\nOrderedDict\n)RN}"
    + text("keys")
    + text("x")
    + b"s\x86b",
    "a call of the result of a call": b"cevil\nThing\n)R(" + text(RUN) + b"tR",
    "getattr": b"cbuiltins\ngetattr\n(cevil\nThing\n" + text("run") + b"tR(" + text(RUN) + b"tR",
    "a registered module of torch": b"ctorch.hub\nload\n(" + text("evil/repo") + b"tR",
    "numpy's loader": b"cnumpy\nload\n(" + text("x.npy") + b"tR",
}


@pytest.mark.parametrize("value", UNKNOWN.values(), ids=UNKNOWN.keys())
def test_unknown_classes_are_inert_beside_the_weights_and_refused_as_one(
    tmp_path: Path, value: bytes
) -> None:
    path = write(tmp_path / "x.pt", beside(value))
    np.testing.assert_array_equal(load_one(path), VALUES.reshape(2, 3))
    loaded = set(sys.modules)
    load_one(path)
    assert set(sys.modules) == loaded
    refused(write(tmp_path / "y.pt", model(value)))


def test_attributes_never_reach_a_class_of_this_process(tmp_path: Path) -> None:
    patch = b"ccollections\nOrderedDict\n(N}" + text("poisoned") + text("x") + b"stb"
    assert "impossible instruction" in refused(write(tmp_path / "x.pt", beside(patch)))
    assert not hasattr(dict, "poisoned")


FAULTS: dict[str, tuple[bytes, str]] = {
    "storage of a foreign class": (
        model(tensor(memory=storage(kind=b"cevil\nFloatStorage\n"))),
        "not PyTorch's",
    ),
    "storage with a path as key": (model(tensor(memory=storage(key="../../x"))), "is no number"),
    "storage that is not there": (model(tensor(memory=storage(key="7"))), "lacks its member"),
    "storage too short": (model(tensor(memory=storage(count=7))), "whose tensors need 28"),
    "storage too long": (model(tensor(memory=storage(count=5))), "whose tensors need 20"),
    "negative count": (model(tensor(memory=storage(count=-6))), "negative"),
    "persistent id is text": (model(text("0") + b"Q"), "not a storage"),
    "persistent id is a list": (model(b"]Q"), "not a storage"),
    "persistent id is a module": (model(b"(" + text("module") + b"NNNNtQ"), "not a storage"),
    "key is no text": (model(b"(" + text("storage") + b"ctorch\nFloatStorage\nK\x00NK\x06tQ"), "another way"),
    "shape beyond the storage": (model(tensor(shape=(3, 3))), "needs 9 elements"),
    "stride beyond the storage": (model(tensor(stride=(2**40, 1))), "elements of the storage"),
    "offset beyond the storage": (model(tensor(offset=1)), "needs 7 elements"),
    "offset beyond 64 bits": (model(tensor(offset=2**70)), "no number"),
    "negative offset": (model(tensor(offset=-1)), "negative"),
    "negative stride": (model(tensor(stride=(-3, 1))), "negative"),
    "negative shape": (model(tensor(shape=(-2, 3))), "negative"),
    "fewer strides": (model(tensor(stride=(1,))), "2 dims with 1 strides"),
    "many dims": (model(tensor(shape=(1,) * 65, stride=(1,) * 65)), "short tuple"),
    "an expanded tensor of any size": (model(tensor(shape=(2**60, 6), stride=(0, 1))), "elements overlap"),
    "overlapping windows": (model(tensor(shape=(4, 3), stride=(1, 1))), "elements overlap"),
    "no storage": (model(tensor(memory=b"N")), "without a storage"),
    "too few arguments": (model(b"ctorch._utils\n_rebuild_tensor_v2\n)R"), "impossible instruction"),
    "no end": (b"\x80\x02}", "ends within"),
    "nothing": (b"", "ends within"),
    "an empty stack": (b"\x80\x02.", "impossible instruction"),
    "a mark as a value": (b"\x80\x02(.", "impossible instruction"),
    "no mark": (b"\x80\x02u.", "impossible instruction"),
    "an unknown memo": (b"\x80\x02h\x07.", "impossible instruction"),
    "a key without a value": (b"\x80\x02}(Nu.", "impossible instruction"),
    "a negative length": (b"\x80\x02\x8b" + struct.pack("<i", -3) + b".", "ends within"),
    "a length beyond the end": (b"\x80\x05\x8e" + struct.pack("<Q", 2**63) + b".", "ends within"),
    "a name without an end": (b"\x80\x02c" + b"a" * 1000, "name without an end"),
    "an instruction of nobody": (b"\x80\x02\xff.", "never writes"),
    "the root is a list": (b"\x80\x02].", "a dict of names and tensors was expected"),
    "a name that is a number": (b"\x80\x02}K\x01" + tensor() + b"s.", "must be a dense tensor"),
}


@pytest.mark.parametrize(("data", "said"), FAULTS.values(), ids=FAULTS.keys())
def test_what_no_checkpoint_says_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    assert said in refused(write(tmp_path / "x.pt", data))


def nested_tuples(depth: int) -> bytes:
    """(x, x), and a pair of that pair, and so on: 2^depth leaves in a few bytes."""
    return b"N" + b"q\x00h\x00\x86" * depth


CALLS_OF_NUMPY = (
    b"cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(" + text("f8") + b"\x89\x88tRC\x08" + b"\0" * 8 + b"tR"
)


BOMBS: dict[str, bytes] = {
    "a key whose hash takes for ever": b"\x80\x02}" + nested_tuples(60) + b"Ns.",
    "half a million deep": b"\x80\x02N" + b"\x85" * 490_000 + b".",
    "dicts in dicts": b"\x80\x02" + b"}N" * 200_000 + b"N" + b"s" * 10 + b".",
    "more instructions than a model needs": b"\x80\x02" + b"N" * 600_000 + b".",
    "keys whose hashes are equal": b"\x80\x02}("
    + b"".join(b"\x8a\x10" + (k * (2**61 - 1)).to_bytes(16, "little") + b"N" for k in range(1, 60_000))
    + b"u.",
    "a list that holds itself": b"\x80\x02]q\x00h\x00a.",
    "a number of a million digits": b"\x80\x02\x8b" + struct.pack("<i", 500_000) + b"\x7f" * 500_000 + b".",
    "classes nested a hundred thousand deep": b"\x80\x02"
    + b"c__torch__\nA\n)\x81" * 100_000
    + b"}"
    + b"b" * 100_000
    + b".",
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_bombs_are_refused_in_a_moment(tmp_path: Path, data: bytes) -> None:
    path = write(tmp_path / "x.pt", data)
    begun = time.process_time()
    refused(path)
    assert time.process_time() - begun < 5


COSTLY: dict[str, tuple[bytes, int]] = {
    "dicts": (b"}", 1),
    "lists": (b"]", 1),
    "sets": (b"\x8f", 1),
    "tuples": (b"N\x85", 2),
    "objects": (b"c__torch__\nA\n)\x81", 3),
    "keys": (b"}K\x01Ns", 4),
    "texts": (b"X\x01\x00\x00\x00a", 1),
}


@pytest.mark.parametrize(("data", "instructions"), COSTLY.values(), ids=COSTLY.keys())
def test_an_instruction_costs_little_memory(data: bytes, instructions: int) -> None:
    """At half a million instructions at most, a hundred bytes each stay within fifty megabytes."""
    count = 10_000
    tracemalloc.start()
    try:
        with pytest.raises(PickleFault, match="ends within"):
            read_pickle(data * count, TensorBuilder(lambda key, *size: None))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - count * len(data) < 100 * count * instructions


@pytest.mark.parametrize("seed", range(4))
def test_pickles_with_random_faults_are_refused_in_a_sentence_or_read(tmp_path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    whole = beside(CALLS_OF_NUMPY)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(generator.integers(1, 4)):
            place = int(generator.integers(len(data)))
            replaced = bytes(generator.integers(0, 256, generator.integers(0, 3), dtype=np.uint8))
            data[place : place + int(generator.integers(0, 4))] = replaced
        path = write(tmp_path / "x.pt", bytes(data))
        try:
            flatten(read_archive(path).root, path)
        except CheckpointError as exc:
            assert re.fullmatch(r".*\.", str(exc))  # noqa: PT017 - refused or read, both are right


def test_modules_that_share_modules_are_counted(tmp_path: Path) -> None:
    module = b"c__torch__\nA\n)\x81q\x00"
    doubled = b"".join(
        b"c__torch__\nA\n)\x81}(" + text("a") + b"h\x00" + text("b") + b"h\x00" + b"ubq\x00"
        for _ in range(50)
    )
    path = write(tmp_path / "x.pt", b"\x80\x02" + module + doubled + b".")
    with pytest.raises(CheckpointError, match="more than 100000 of them"):
        flatten(read_archive(path).root, path)


def test_a_list_that_holds_itself_has_no_end_to_its_names(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", b"\x80\x02]q\x00h\x00a.")
    with pytest.raises(CheckpointError, match="64 deep"):
        flatten(read_archive(path).root, path)


def test_compressed_members_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\x80\x02}." + b"\0" * 10**7)
    assert path.stat().st_size < 50_000
    assert "is compressed" in refused(path)


@pytest.mark.parametrize(
    "name", ["../x", "/x", "archive/../../x", "archive//x", "archive\\x/y", "x", "other/x", "archive/a\0b"]
)
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "x.pt", model(tensor()))
    placeholder = "archive/" + "q" * (len(name) - 8) if len(name) > 8 else "q" * len(name)
    with zipfile.ZipFile(path, "a") as file:
        file.writestr(zipfile.ZipInfo(placeholder), b"")
    data = path.read_bytes()
    assert data.count(placeholder.encode()) == 2
    path.write_bytes(data.replace(placeholder.encode(), name.encode()))
    assert re.search("plain names|folders", refused(path))


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", model(tensor()))
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("archive/data.pkl", b"\x80\x02}.")
    assert "two members" in refused(path)


@pytest.mark.parametrize("name", ["data.pkl", "data/0", "version"])
def test_a_flipped_bit_is_found_by_the_checksum(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / "x.pt", model(tensor()))
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(f"archive/{name}")
    data = bytearray(path.read_bytes())
    data[info.header_offset + 30 + len(info.filename) + 1] ^= 1
    path.write_bytes(data)
    assert "checksum" in refused(path)


def test_no_byte_of_an_archive_can_change_or_vanish_unseen(tmp_path: Path) -> None:
    """Every truncation and every flipped byte: refused, or the very same values."""
    whole = write(tmp_path / "whole.pt", model(tensor())).read_bytes()
    path = tmp_path / "x.pt"
    variants = [whole[:size] for size in range(len(whole))]
    for place in range(len(whole)):
        variants.append(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
    for variant in variants:
        path.write_bytes(variant)
        try:
            found = load(path)
        except CheckpointError as exc:
            assert str(exc).endswith(".")  # noqa: PT017 - refused or equal, both are right
        else:
            np.testing.assert_array_equal(found["w"], VALUES.reshape(2, 3))


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", model(tensor()), **{"data/1": VALUES.tobytes()})
    with zipfile.ZipFile(path) as file:
        first, second = (file.getinfo(f"archive/data/{key}").header_offset for key in "01")
    data = bytearray(path.read_bytes())
    entry = data.rfind(b"archive/data/1") - 46  # its line of the directory
    data[entry + 42 : entry + 46] = struct.pack("<L", first)
    path.write_bytes(data)
    assert first != second
    assert "something else begins" in refused(path)


@pytest.mark.parametrize("content", [b"big", b"middle", b""])
def test_another_byte_order_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "byte order" in refused(write(tmp_path / "x.pt", model(tensor()), byteorder=content))


@pytest.mark.parametrize("content", [b"11\n", b"x", b"-1", "²".encode()])
def test_an_unknown_format_version_is_refused(tmp_path: Path, content: bytes) -> None:
    assert "format version" in refused(write(tmp_path / "x.pt", model(tensor()), version=content))


def test_an_archive_without_its_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("archive/version", b"3")
    assert "without data.pkl" in refused(path)
    with zipfile.ZipFile(path, "w"):
        pass
    refused(path)


def test_a_pickle_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    assert "at most 33554432 are read" in refused(write(tmp_path / "x.pt", b"\0" * (33 << 20)))


def test_a_directory_of_many_members_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    name = b"a/b"
    entry = struct.pack(
        "<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 0, 20, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0
    )
    directory, count = (entry + name) * 300_000, 300_000
    end = (b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(directory), 4)
    path.write_bytes(
        b"PK\x03\x04"
        + directory
        + struct.pack("<4sQ2H2L4Q", *end)
        + struct.pack("<4sLQL", b"PK\x06\x07", 0, 4 + len(directory), 1)
        + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 2**32 - 1, 2**32 - 1, 0)
    )
    assert "300000 members" in refused(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_named(tmp_path: Path, value: float) -> None:
    values = VALUES.copy()
    values[4] = value
    path = write(tmp_path / "x.pt", model(tensor()), **{"data/0": values.tobytes()})
    store = TorchStore(path, state_dict_of(read_archive(path).root, path))
    with pytest.raises(CheckpointError, match="w has NaN or infinity in 1 of 6 places"):
        make_weight(store, Recipe.of("w", 2, 3))


def test_a_file_that_shrinks_after_it_was_opened_is_noticed(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pt", model(tensor()))
    archive = read_archive(path)
    root: Any = archive.root
    path.write_bytes(path.read_bytes()[: root["w"].storage.extent.start + 4])
    with pytest.raises(CheckpointError, match="has become shorter"):
        archive.read(root["w"])
    path.unlink()
    with pytest.raises(CheckpointError, match="could not be read"):
        archive.read(root["w"])


def legacy(pickled: bytes, keys: bytes, tail: bytes, little: bytes = b"\x88") -> bytes:
    system = b"\x80\x02}" + text("little_endian") + little + b"s."
    magic = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
    return magic + b"\x80\x02M\xe9\x03." + system + pickled + b"\x80\x02]" + keys + b"." + tail


SIX = struct.pack("<q", 6) + VALUES.tobytes()
LEGACY: dict[str, tuple[bytes, str]] = {
    "truncated": (legacy(model(tensor()), text("0") + b"a", SIX[:-1]), "is truncated"),
    "no key": (legacy(model(tensor()), b"", SIX), "are not those of its tensors"),
    "another key": (legacy(model(tensor()), text("1") + b"a", SIX), "are not those of its tensors"),
    "a key twice": (legacy(model(tensor()), (text("0") + b"a") * 2, SIX * 2), "are not those of its tensors"),
    "big endian": (legacy(model(tensor()), text("0") + b"a", SIX, b"\x89"), "another kind of machine"),
    "os.system": (legacy(model(CALLS["eval"]), text("0") + b"a", SIX), "would run builtins.eval"),
    "two sizes of one storage": (
        legacy(
            b"\x80\x02}(" + text("w") + tensor() + text("v") + tensor(memory=storage(count=7)) + b"u.",
            text("0") + b"a",
            SIX,
        ),
        "in two ways",
    ),
    "nothing behind its magic number": (legacy(b"", b"", b"")[:15], "ends within"),
}


@pytest.mark.parametrize(("data", "said"), LEGACY.values(), ids=LEGACY.keys())
def test_old_files_are_held_to_the_same_rules(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "x.pt"
    path.write_bytes(legacy(model(tensor()), text("0") + b"a", SIX))
    np.testing.assert_array_equal(load(path)["w"], VALUES.reshape(2, 3))
    path.write_bytes(data)
    assert said in refused(path)


def test_old_files_whose_counts_disagree_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    wrong = struct.pack("<q", 5) + VALUES.tobytes()
    path.write_bytes(legacy(model(tensor()), text("0") + b"a", wrong))
    assert "has 5 elements" in refused(path)


def test_the_checksum_of_a_large_storage_is_held_for_a_part_of_it(tmp_path: Path) -> None:
    part = model(tensor(shape=(2,), stride=(1,), offset=1))
    path = write(tmp_path / "x.pt", part)
    np.testing.assert_array_equal(load(path)["w"], VALUES[1:3])
    data = bytearray(path.read_bytes())
    place = data.find(VALUES.tobytes())
    data[place + 20] ^= 1  # outside of the part
    path.write_bytes(data)
    assert "checksum" in refused(path)
    assert zlib.crc32(VALUES.tobytes()) != zlib.crc32(data[place : place + 24])
