"""Nothing in a bundle lies unseen: each field of the manifest, of the evidence and of the files for other
clients is changed in turn, all hashes are made right again, and the bundle is refused.

What nothing in a bundle can contradict is in the lists below, with the reason; docs/bundle.md has them too.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.bundle import describe_bundle, open_bundle
from gpt_onnx.cli._clients_table import client_facts
from gpt_onnx.errors import BundleError
from gpt_onnx.runtime.verify import verify_files
from tests.resealing import reseal

Place = tuple[str | int, ...]
WALK_THROUGH = Path(__file__).parent / "foreign_modules.py"
MANIFEST, CONFIG, GENERATION = "manifest.json", "config.json", "generation_config.json"
GENAI, OPERATORS = "genai_config.json", "required_operators.config"
LEARNED = {"position": "learned"}
LLAMA = {
    "position": "rotary",
    "norm": "rmsnorm",
    "activation": "swiglu",
    "bias": False,
    "tie_embeddings": False,
}
INTEGERS = {"precision": "int4", "quantizer": "rtn", "block_size": 16}

KINDS: Mapping[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "web, learned": (LEARNED, {"target": "web"}),
    "portable, llama": (LLAMA, {"target": "portable"}),
    "cpu, alibi": ({"position": "alibi"}, {}),
    "static": ({}, {"seq_len": 32, "batch_size": 2}),
    "plain": (LEARNED, {"kv_cache": False}),
    "cpu, int4": ({}, INTEGERS),
    "portable, int4": (LLAMA, INTEGERS | {"target": "portable"}),
    "portable, fp16": ({}, {"precision": "fp16", "target": "portable"}),
}
"""What differs in the model, and in the options of the export; besides there is a module of anybody's."""

UNTOLD: Mapping[str, str] = {
    "name": "what to call a model is free",
    "source_sha256": "the source is not in the bundle",
    r"quantization\.quantizer": "no node says how its integers were chosen",
}
"""Fields of a manifest that nothing in any bundle contradicts, by pattern, and why."""
UNCHECKED: Mapping[str, str] = {r"versions\..*": "parity.json repeats them, and an unchecked bundle has none"}
STANDARD_INTEGERS: Mapping[str, str] = {
    r"quantization\.accuracy_level": "what gpt-onnx asks of a runtime, for DequantizeLinear has none",
    r"quantization\.symmetric": "DequantizeLinear takes zero points always, and has them among the weights",
}
FOREIGN: Mapping[str, str] = {
    r"model\.parameters": "a traced graph names weights as the module does, beside its buffers",
    r"model\.position_limit": "the module's own refusal, of which a trace holds nothing",
}
UNTOLD_IN: Mapping[str, Mapping[str, str]] = {"portable, int4": STANDARD_INTEGERS, "foreign": FOREIGN}
"""More such fields in one kind of bundle alone."""
FREE: Mapping[str, Mapping[str, str]] = {
    CONFIG: {
        r"gpt_onnx\.(dropout|bias)": "of training, and a default of fields that are all there",
        r"gpt_onnx\.(activation|norm|norm_order)": "the graph computes the numbers, and reads no word of it",
        r"gpt_onnx\.(attention_scale|attention_scale_by_layer|embedding_scale)": "the same",
        r"gpt_onnx\.(sinusoidal_style|rope_style|rope_size|rope_theta)": "the same",
    },
    GENERATION: {"do_sample|temperature|top_k|top_p|repetition_penalty": "how to sample is the user's"},
    GENAI: {
        r"search\.(do_sample|temperature|top_k|top_p|repetition_penalty)": "the same",
        r"search\.(min_length|max_length)": "the same",
        r"model\.decoder\.session_options\..*": "on what a client computes is the user's too",
    },
}
"""Keys of files for other clients that nothing in any bundle contradicts."""
UNKNOWN_TO_VERIFY = ("README.md", "tokenizer_config.json", "tokenizer.json")
"""Files without which a bundle is whole: prose, and the source's own tokenizer."""
OTHERS: Mapping[str, tuple[Any, ...]] = {
    "target": ("cpu", "web", "portable", "npu"),
    "precision": ("fp32", "fp16", "int8", "int4", "fp8"),
    "layout": ("dynamic", "static", "plain"),
    "attention": ("gqa", "decomposed", "traced"),
    "position": ("sinusoidal", "learned", "rotary", "alibi", "unknown"),
    "check": ("none", "quick", "standard", "deep"),
    "bits": (4, 8),
    "head_bits": (4, 8, 32),
    "accuracy_level": (0, 4),
    "block_size": (16, 32, 64, 128),
    "activation": ("relu", "gelu", "swiglu"),
    "norm": ("layernorm", "rmsnorm"),
    "norm_order": ("pre", "post"),
    "attention_scale": ("head_size", "n_embd", 0.5),
    "embedding_scale": (1.0, "sqrt"),
    "sinusoidal_style": ("interleaved", "concatenated"),
    "rope_style": ("half", "interleaved"),
    "dropout": (0.0, 0.1),
    "format_version": (1, 2, 3, 4),
}
"""Values that a field may have in some bundle, by its name."""


def leaves(value: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Yield every value that holds no other, with where it is; an empty list or object is one too."""
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    if not items:
        yield place, value
    for key, inner in items:
        yield from leaves(inner, (*place, key))


def changed(name: str, value: Any) -> Iterator[Any]:
    """Yield other values for a field: of its kind, where it has one."""
    if name in OTHERS:
        yield from (other for other in OTHERS[name] if other != value)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, 2 * value + 8)
    elif isinstance(value, float):
        yield 2 * value + 1
    elif isinstance(value, str):
        yield "0" * 64 if re.fullmatch("[0-9a-f]{64}", value) else f"{value}x"
    elif value is None:
        yield 7
    else:
        yield ["x"]


def edited(values: Any, place: Place, edit: Callable[[Any, str | int], object]) -> Any:
    """A copy in which something was done to the key of a place."""
    made = copy.deepcopy(values)
    inner = made
    for key in place[:-1]:
        inner = inner[key]
    edit(inner, place[-1])
    return made


def with_value(values: Any, place: Place, value: Any) -> Any:
    return edited(values, place, lambda inner, key: inner.__setitem__(key, value))


def without(values: Any, place: Place) -> Any:
    return edited(values, place, lambda inner, key: inner.__delitem__(key))


def is_refused(opener: Callable[[Path], object], folder: Path) -> bool:
    """Whether something refuses a bundle, in one sentence."""
    try:
        opener(folder)
    except BundleError as exc:
        return "\n" not in str(exc)
    return False


def inspect_with_clients(folder: Path) -> object:
    """What ``gpt-onnx inspect --clients`` does."""
    bundle = open_bundle(folder)
    return describe_bundle(bundle), client_facts(bundle)


def unseen(
    folder: Path, name: str, contents: Mapping[str, str], opener: Callable[[Path], object]
) -> list[str]:
    """Which contents of a file, each by what it changes, an opener takes; the file is left as it was."""
    path = folder / name
    kept, taken = path.read_text(encoding="utf-8"), []
    for what, content in contents.items():
        path.write_text(content, encoding="utf-8")
        if name != MANIFEST:
            reseal(folder)
        taken += [] if is_refused(opener, folder) else [what]
        path.write_text(kept, encoding="utf-8")
    if name != MANIFEST:
        reseal(folder)
    opener(folder)
    return taken


def changes(values: Any) -> dict[str, str]:
    """Return every other content of a file of JSON, by the place that is changed."""
    return {
        f"{'.'.join(map(str, place))} = {other!r}": json.dumps(with_value(values, place, other))
        for place, value in leaves(values)
        for other in changed(str(place[-1]), value)
    }


def omissions(values: Any) -> dict[str, str]:
    """Return every content with a key less."""
    return {
        f"{'.'.join(map(str, place))} left out": json.dumps(without(values, place))
        for place, _ in leaves(values)
        if isinstance(place[-1], str)
    }


def unexplained(taken: list[str], *lists: Mapping[str, str]) -> list[str]:
    """Those changes that no list has."""
    patterns = [re.compile(pattern) for patterns in lists for pattern in patterns]
    return [what for what in taken if not any(p.fullmatch(what.split(" ")[0]) for p in patterns)]


OPENERS: Mapping[str, Callable[[Path], object]] = {"verify": verify_files, "inspect": inspect_with_clients}


@pytest.fixture(params=OPENERS)
def opener(request: pytest.FixtureRequest) -> Callable[[Path], object]:
    return OPENERS[request.param]


@pytest.fixture(params=[*KINDS, "foreign"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(exported: Any, kind: str, tmp_path: Path) -> Path:
    """A copy of an unchecked bundle of a kind."""
    model, options = KINDS.get(kind, (f"{WALK_THROUGH}:walk_through", {}))
    source = model if isinstance(model, str) else {"n_embd": 48, "n_head": 3} | model
    return Path(shutil.copytree(exported(source, **options).path, tmp_path / "copy"))


@pytest.fixture
def checked(tiny_bundle: Any, tmp_path: Path) -> Path:
    """A copy of a bundle that the gate has seen."""
    return Path(shutil.copytree(tiny_bundle(check="quick").path, tmp_path / "copy"))


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_every_field_of_a_manifest_is_held_against_something(
    folder: Path, kind: str, opener: Callable[[Path], object]
) -> None:
    taken = unseen(folder, MANIFEST, changes(read(folder, MANIFEST)), opener)
    assert unexplained(taken, UNTOLD, UNCHECKED, UNTOLD_IN.get(kind, {})) == []


def test_every_field_of_a_checked_manifest_is_held_against_something(
    checked: Path, opener: Callable[[Path], object]
) -> None:
    assert unexplained(unseen(checked, MANIFEST, changes(read(checked, MANIFEST)), opener), UNTOLD) == []


@pytest.mark.parametrize("name", FREE)
def test_every_key_that_clients_read_is_held_against_something(folder: Path, name: str) -> None:
    if (folder / name).exists():
        values = read(folder, name)
        taken = unseen(folder, name, changes(values) | omissions(values), verify_files)
        assert unexplained(taken, FREE[name]) == []


def test_every_operator_is_held_against_the_graph(folder: Path) -> None:
    text = (folder / OPERATORS).read_text(encoding="utf-8")
    names = re.findall(r"(?<=[;,])[A-Z][A-Za-z]+", text)
    assert len(names) > 5
    contents = {name: re.sub(rf"(?<=[;,]){name}\b", "Other", text) for name in names}
    assert unseen(folder, OPERATORS, contents, verify_files) == []


def test_what_the_lists_have_is_taken(exported: Any, tmp_path: Path) -> None:
    """A field that something contradicts by now has no place in a list."""
    folder = Path(shutil.copytree(exported({"n_embd": 48, "n_head": 3}, **INTEGERS).path, tmp_path / "copy"))
    taken = unseen(folder, MANIFEST, changes(read(folder, MANIFEST)), verify_files)
    lists = {**UNTOLD, **UNCHECKED}
    assert [p for p in lists if not any(re.fullmatch(p, what.split(" ")[0]) for what in taken)] == []


def resealed(folder: Path) -> Path:
    reseal(folder)
    return folder


def test_no_file_may_be_missing_but_prose_and_the_tokenizer(
    checked: Path, opener: Callable[[Path], object]
) -> None:
    for name in open_bundle(checked).manifest.files:
        if name not in UNKNOWN_TO_VERIFY:
            kept = (checked / name).read_bytes()
            (checked / name).unlink()
            with pytest.raises(BundleError, match=re.escape(name)):
                opener(resealed(checked))
            (checked / name).write_bytes(kept)
            reseal(checked)


Edit = Callable[[Any], object]
ODD_FILES: Mapping[str, tuple[str, Edit, str]] = {
    "a sliding window": (
        GENAI,
        lambda v: v["model"]["decoder"].update(sliding_window={"window_size": 4}),
        r"model\.decoder\.sliding_window",
    ),
    "a pipeline": (GENAI, lambda v: v["model"]["decoder"].update(pipeline=[]), r"model\.decoder\.pipeline"),
    "another input": (
        GENAI,
        lambda v: v["model"]["decoder"]["inputs"].update(rnn_prev_states="x"),
        r"model\.decoder\.inputs\.rnn_prev_states",
    ),
    "an encoder": (GENAI, lambda v: v["model"].update(encoder={}), r"model\.encoder"),
    "a length that is no integer": (
        GENAI,
        lambda v: v["model"].update(context_length=float(v["model"]["context_length"])),
        r"model\.context_length is \d+\.0",
    ),
    "a longest text that is no integer": (
        GENAI,
        lambda v: v["search"].update(max_length=64.0),
        r"search\.max_length is 64\.0",
    ),
    "a vocabulary that is no integer": (
        CONFIG,
        lambda v: v.update(vocab_size=float(v["vocab_size"])),
        r"vocab_size is \d+\.0",
    ),
    "a temperature below 0": (GENERATION, lambda v: v.update(temperature=-1), "temperature is -1"),
    "a cut that is no integer": (GENERATION, lambda v: v.update(top_k=50.0), r"top_k is 50\.0"),
    "an option that none knows": (
        MANIFEST,
        lambda v: v["options"].update(trust=1),
        "options has the unknown key 'trust'",
    ),
}
"""A file, what is done to what it holds, and what is then said."""
ODD_TEXTS: Mapping[str, tuple[str, str, str]] = {
    "an empty tokenizer": ("tokenizer.json", "{}", "the tokenizer of .* cannot be used"),
    "settings that are no object": ("tokenizer_config.json", "[1]", r"tokenizer_config\.json holds a list"),
    "settings that are no JSON": ("tokenizer_config.json", "{", r"tokenizer_config\.json is not UTF-8 JSON"),
}


@pytest.mark.parametrize("odd", ODD_FILES)
def test_verify_and_inspect_refuse_the_same_values(
    checked: Path, opener: Callable[[Path], object], odd: str
) -> None:
    name, edit, says = ODD_FILES[odd]
    values = read(checked, name)
    edit(values)
    (checked / name).write_text(json.dumps(values))
    with pytest.raises(BundleError, match=says):
        opener(checked if name == MANIFEST else resealed(checked))


@pytest.mark.parametrize("odd", ODD_TEXTS)
def test_verify_and_inspect_refuse_the_same_texts(
    checked: Path, opener: Callable[[Path], object], odd: str
) -> None:
    name, text, says = ODD_TEXTS[odd]
    (checked / name).write_text(text)
    with pytest.raises(BundleError, match=says):
        opener(resealed(checked))


def test_settings_may_be_edited(checked: Path, opener: Callable[[Path], object]) -> None:
    """Sampling, and keys that an export does not write: the hash alone has to follow."""
    settings = {"temperature": 0.3, "top_k": 7, "do_sample": False, "max_length": 99, "my_own": [1]}
    (checked / GENERATION).write_text(json.dumps(read(checked, GENERATION) | settings))
    with pytest.raises(BundleError, match=rf"{GENERATION} (is damaged|has)"):
        opener(checked)
    reseal(checked)
    opener(checked)
