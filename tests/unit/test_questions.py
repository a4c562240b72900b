"""What tensors say of a configuration, what is asked for, and answers that cannot be."""

from __future__ import annotations

import dataclasses
import itertools
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint.facts import facts_of
from gpt_onnx.checkpoint.questions import QUESTIONS, complete, is_open, read_answers, template
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError, InputError
from gpt_onnx.parameter_shapes import parameter_shapes

SIZES: dict[str, Any] = {"vocab_size": 53, "context_length": 40, "n_embd": 24, "n_layer": 2, "n_head": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "sinusoidal": {},
    "learned, free head with bias": {"position": "learned", "tie_embeddings": False, "head_bias": True},
    "tied head with bias": {"head_bias": True, "norm_order": "post", "final_norm": False},
    "grouped heads, wide": {"n_kv_head": 2, "head_size": 10, "d_ff": 7, "qkv_bias": True},
    "llama": {
        "position": "rotary",
        "rope_theta": 5000.0,
        "norm": "rmsnorm",
        "activation": "swiglu",
        "bias": False,
    },
    "no biases but the norms'": {"bias": False, "norm_bias": True, "attention_scale": "n_embd"},
    "biases of the projection alone": {"bias": False, "proj_bias": True, "embedding_scale": "sqrt"},
}
SOURCE = Path("gpt.pt")


def single_heads(config: GPTConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of a model whose heads are modules."""
    shapes = parameter_shapes(config)
    counts = {"q": config.n_head, "k": config.n_kv_head, "v": config.n_kv_head}
    for layer, kind in itertools.product(range(config.n_layer), ("weight", "bias")):
        packed = shapes.pop(f"h.{layer}.attn.c_attn.{kind}", None)
        if packed is not None:
            for part, count in counts.items():
                for head in range(count):
                    shapes[f"h.{layer}.attn.{part}.{head}.{kind}"] = (config.head_size, *packed[1:])
    return shapes


def answers_of(config: GPTConfig) -> dict[str, Any]:
    """What somebody who knows a configuration answers."""
    return {question.key: getattr(config, question.key) for question in QUESTIONS}


def written(folder: Path, answers: dict[str, Any]) -> Path:
    path = folder / "gpt.json"
    path.write_text(json.dumps(answers))
    return path


@pytest.mark.parametrize("shapes_of", [parameter_shapes, single_heads])
@pytest.mark.parametrize("name", VARIANTS)
def test_facts_and_answers_are_the_configuration(name: str, shapes_of: Any, tmp_path: Path) -> None:
    config = GPTConfig(**(SIZES | VARIANTS[name]))
    found = complete(facts_of(shapes_of(config)), written(tmp_path, answers_of(config)), source=SOURCE)
    differing = {
        field.name: (getattr(found, field.name), getattr(config, field.name))
        for field in dataclasses.fields(GPTConfig)
        if getattr(found, field.name) != getattr(config, field.name)
    }
    assert differing.keys() <= {"bias"}  # which only says what the other biases are where they are not told


@pytest.mark.parametrize("name", VARIANTS)
def test_every_open_question_is_listed_and_stands_in_the_template(name: str) -> None:
    facts = facts_of(parameter_shapes(GPTConfig(**(SIZES | VARIANTS[name]))))
    with pytest.raises(InputError) as caught:
        complete(facts, None, source=SOURCE)
    text = template(facts, source=SOURCE)
    for question in QUESTIONS:
        asked = question.key not in facts.values and question.when(facts.values)
        assert (f"{question.key} ({question.words(facts)})" in str(caught.value)) == asked
        assert not asked or f'# {question.key} = "?"    # {question.words(facts)}' in text
    assert "gpt-onnx export gpt.pt --dry-run > gpt.toml" in str(caught.value)


def test_template_keeps_answers_and_reads_back(tmp_path: Path) -> None:
    config = GPTConfig(**SIZES)
    facts = facts_of(parameter_shapes(config))
    text = template(facts, source=SOURCE, file=written(tmp_path, answers_of(config)))
    path = tmp_path / "gpt.toml"
    path.write_text(text)
    assert complete(facts, path, source=SOURCE) == config


def test_open_answer_of_a_template_is_no_answer(tmp_path: Path) -> None:
    path = tmp_path / "gpt.toml"
    path.write_text('activation = "?"\nd_model = 24\n')
    assert read_answers(path) == {"n_embd": 24}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"n_layer": 3}, "says n_layer = 3; the tensors of gpt.pt say 2"),
        ({"d_model": 25}, "says n_embd = 25; the tensors of gpt.pt say 24"),
        ({"activation": "swiglu"}, "the tensors of gpt.pt leave relu, gelu, gelu_tanh, silu"),
        ({"position": "learned"}, "the tensors of gpt.pt leave sinusoidal, rotary, alibi"),
        ({"n_head": 5}, "n_head is 5; the queries have 24 rows"),
        ({"n_head": "four"}, "n_head is 'four'"),
        ({"n_head": 4, "head_size": 8}, "head_size is 8; with n_head = 4 the tensors say 6"),
        ({"n_head": 4, "num_heads": 4}, "has num_heads beside another word for n_head"),
        ({"activation": "mish"}, "the tensors of gpt.pt leave relu"),
        ({"norm_eps": "small"}, "norm_eps is 'small'"),
        ({"colour": "red"}, "has the unknown key 'colour'"),
    ],
)
def test_answers_that_cannot_be_are_refused(answers: dict[str, Any], message: str, tmp_path: Path) -> None:
    config = GPTConfig(**SIZES)
    file = written(tmp_path, {**answers_of(config), **answers})
    with pytest.raises(ConfigError, match=message):
        complete(facts_of(parameter_shapes(config)), file, source=SOURCE)


@pytest.mark.parametrize("text", ["activation = ", "\0", "= 3"])
def test_file_that_is_no_toml_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "gpt.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"gpt\.toml could not be read as TOML"):
        read_answers(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"wte.weight": None}, "no tensor is wte.weight"),
        ({"h.0.mlp.c_fc.weight": None}, "no tensor is h.0.mlp.c_fc.weight"),
        ({"wte.weight": (53,)}, "wte.weight has the shape"),
        ({"h.0.attn.c_attn.weight": ()}, "h.0.attn.c_attn.weight has the shape"),
        ({"wpe.weight": ()}, "wpe.weight has the shape"),
        ({"h.3.ln_1.weight": (24,)}, "layers up to 3 are stored, and layer 2 is missing"),
    ],
)
def test_tensors_that_make_no_gpt_are_refused(
    changes: dict[str, tuple[int, ...] | None], message: str
) -> None:
    shapes = {**parameter_shapes(GPTConfig(**SIZES)), **changes}
    with pytest.raises(CheckpointError, match=message):
        facts_of({name: shape for name, shape in shapes.items() if shape is not None})


def test_first_layer_must_be_layer_0() -> None:
    shapes = {
        name.replace("h.0.", "h.2."): shape for name, shape in parameter_shapes(GPTConfig(**SIZES)).items()
    }
    with pytest.raises(CheckpointError, match="layers up to 2 are stored, and layer 0 is missing"):
        facts_of(shapes)


def test_a_template_of_some_answers_keeps_them_and_asks_the_rest(tmp_path: Path) -> None:
    facts = facts_of(parameter_shapes(GPTConfig(**SIZES)))
    scaling = {"kind": "linear", "factor": 2.0, "original_context_length": None}
    told = {"position": "rotary", "rope_theta": 500.0, "rope_scaling": scaling}
    text = template(facts, source=SOURCE, file=written(tmp_path, told))
    assert is_open(text)
    assert "# activation = " in text
    assert tomllib.loads(text)["rope_scaling"] == {"kind": "linear", "factor": 2.0}
    assert {"rope_theta = 500.0", 'position = "rotary"'} <= set(text.splitlines())
    assert "sinusoidal_style" not in text


def test_a_template_without_a_question_is_not_open(tmp_path: Path) -> None:
    config = GPTConfig(**SIZES)
    facts = facts_of(parameter_shapes(config))
    assert is_open(template(facts, source=SOURCE))
    assert not is_open(template(facts, source=SOURCE, file=written(tmp_path, answers_of(config))))


def test_a_template_of_a_wrong_answer_is_refused(tmp_path: Path) -> None:
    facts = facts_of(parameter_shapes(GPTConfig(**SIZES)))
    with pytest.raises(ConfigError, match=r"gpt\.json says n_layer = 3; the tensors of gpt\.pt say 2"):
        template(facts, source=SOURCE, file=written(tmp_path, {"n_layer": 3}))
