"""The files for other clients: config.json, generation_config.json, genai_config.json, README.md."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.checkpoint.special_ids import special_ids, special_of
from gpt_onnx.clients import BundleFacts, config_json, genai_config_json, generation_config_json
from gpt_onnx.config import GPTConfig
from gpt_onnx.export.readme import readme
from gpt_onnx.rope import RopeScaling
from gpt_onnx.runtime.generation_config import GenerationDefaults

CONFIG = GPTConfig(vocab_size=89, context_length=64, n_embd=48, n_layer=2, n_head=3)
FITS = GPTConfig(vocab_size=11, context_length=32, n_embd=24, n_layer=2, n_head=3)
"""A configuration whose cache is that of the toy manifest: three heads of 8."""
END = {"bos_token_id": 0, "eos_token_id": 0}


def _tokenizer(config: dict[str, Any], added: dict[str, int], vocab: Any = None) -> TokenizerFiles:
    definition = {
        "added_tokens": [{"id": number, "content": token} for token, number in added.items()],
        "model": {"type": "BPE", "vocab": {"a": 1} if vocab is None else vocab, "merges": []},
    }
    return TokenizerFiles(definition=json.dumps(definition), config=config)


def _read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def test_special_tokens_are_found_by_their_text() -> None:
    named = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}}
    assert special_ids(_tokenizer(named, {"<s>": 5, "</s>": 6})) == {"bos_token_id": 5, "eos_token_id": 6}
    assert special_ids(_tokenizer(named, {}, {"a": 1, "</s>": 7})) == {"eos_token_id": 7}


@pytest.mark.parametrize("vocab", [[["a", -1.0]], {}], ids=["unigram", "empty"])
def test_special_tokens_may_be_unknown(vocab: Any) -> None:
    assert special_ids(_tokenizer({"eos_token": "</s>"}, {}, vocab)) == {}
    assert special_ids(_tokenizer({}, {"x": 1}, vocab)) == {}
    assert special_ids(None) == {}


def test_configuration_is_gpt2_in_words_that_clients_know(make_manifest: Any) -> None:
    values = config_json(make_manifest(), FITS, END)
    assert values["model_type"] == "gpt2"
    assert (values["n_layer"], values["n_head"], values["n_embd"], values["n_positions"]) == (2, 3, 24, 32)
    assert values["transformers.js_config"] == {
        "dtype": "fp32",
        "use_external_data_format": 1,
    }
    assert values["eos_token_id"] == 0
    assert GPTConfig.from_dict(values["gpt_onnx"]) == FITS


NOT_GPT2: dict[str, dict[str, Any]] = {
    "grouped heads": {"n_kv_head": 1},
    "narrow heads": {"n_embd": 48, "head_size": 8},
    "padded heads": {"n_embd": 36, "head_size": 12},
    "rotary": {"position": "rotary", "rope_theta": 500000.0},
}


@pytest.mark.parametrize("case", NOT_GPT2)
def test_a_cache_that_gpt2_cannot_describe_is_described_in_llamas_words(
    make_manifest: Any, case: str
) -> None:
    """transformers.js makes caches of num_key_value_heads x head_dim by these keys."""
    config = FITS.replace(**NOT_GPT2[case])
    values = config_json(make_manifest(), config, END)
    assert (values["model_type"], values["num_hidden_layers"]) == ("llama", 2)
    assert (values["num_key_value_heads"], values["num_attention_heads"]) == (config.n_kv_head, 3)
    assert values["head_dim"] == make_manifest().model.cache_head_size
    assert values["rope_theta"] == config.rope_theta
    assert GPTConfig.from_dict(values["gpt_onnx"]) == config


def test_the_words_of_llama_are_read_back_as_the_same_model(make_manifest: Any) -> None:
    """Where heads are not padded, config.json is that of a Hugging Face folder."""
    from gpt_onnx.checkpoint.readers.hf_folder import FAMILIES
    from gpt_onnx.checkpoint.readers.hf_folder_family import config_of

    scaling = RopeScaling(
        kind="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context_length=16
    )
    config = FITS.replace(
        position="rotary",
        rope_scaling=scaling,
        norm="rmsnorm",
        norm_bias=False,
        bias=False,
        proj_bias=False,
        mlp_bias=False,
        activation="swiglu",
        n_kv_head=1,
        tie_embeddings=False,
    )
    values = json.loads(json.dumps(config_json(make_manifest(), config, END)))
    assert config_of(FAMILIES["llama"], values, Path("config.json")) == config


def test_a_module_of_anybodys_claims_no_architecture(make_manifest: Any) -> None:
    values = config_json(make_manifest("plain"), None, {})
    assert values == {"model_type": "gpt_onnx", "vocab_size": 11, "n_positions": 32}


def test_generation_defaults() -> None:
    values = generation_config_json(END)
    assert values["pad_token_id"] == values["eos_token_id"] == 0
    assert (values["temperature"], values["top_k"], values["top_p"]) == (0.8, 50, 1.0)
    assert "pad_token_id" not in generation_config_json({})


SAMPLED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {"do_sample": True, "temperature": 0.8, "top_k": 50}),
    "penalty alone": ({"repetition_penalty": 1.1}, {"temperature": 0.8, "repetition_penalty": 1.1}),
    "greedy": ({"do_sample": False}, {"do_sample": False, "temperature": 1.0}),
    "as transformers fills it": (
        {"do_sample": True, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 50, "top_p": 0.9},
    ),
    "temperature alone": ({"temperature": 0.6}, {"do_sample": True, "temperature": 0.6}),
}


@pytest.mark.parametrize("case", SAMPLED)
def test_sampling_is_as_the_checkpoint_says(case: str) -> None:
    said, expected = SAMPLED[case]
    values = generation_config_json(END, said)
    assert {word: values[word] for word in expected} == expected
    GenerationDefaults.from_dict(values)


def test_special_ids_of_the_checkpoint_count_before_those_of_the_tokenizer() -> None:
    tokenizer = _tokenizer({"bos_token": "<s>", "eos_token": "</s>"}, {"<s>": 5, "</s>": 6})
    special = special_of(tokenizer, {"eos_token_id": [6, 7], "pad_token_id": 9, "top_k": 3})
    assert special == {"bos_token_id": 5, "eos_token_id": [6, 7], "pad_token_id": 9}
    assert generation_config_json(special)["pad_token_id"] == 9
    assert generation_config_json({"eos_token_id": [6, 7]})["pad_token_id"] == 6


def test_genai_takes_several_ends_and_no_temperature_of_zero(make_manifest: Any) -> None:
    special = {"eos_token_id": [3, 4], "pad_token_id": 1}
    values = genai_config_json(make_manifest(), FITS, special, {"temperature": 0, "do_sample": True})
    assert (values["model"]["eos_token_id"], values["model"]["pad_token_id"]) == ([3, 4], 1)
    assert (values["search"]["do_sample"], values["search"]["temperature"]) == (False, 1.0)
    assert set(values["search"]) == KNOWN_TO_GENAI["search"]
    one = genai_config_json(make_manifest(), FITS, {"eos_token_id": [3]})
    assert one["model"]["eos_token_id"] == one["model"]["bos_token_id"] == 3


KNOWN_TO_GENAI = {
    "model": {
        "type",
        "bos_token_id",
        "eos_token_id",
        "pad_token_id",
        "context_length",
        "vocab_size",
        "decoder",
    },
    "decoder": {
        "filename",
        "session_options",
        "hidden_size",
        "head_size",
        "num_attention_heads",
        "num_key_value_heads",
        "num_hidden_layers",
        "inputs",
        "outputs",
    },
    "search": {
        "do_sample",
        "max_length",
        "min_length",
        "past_present_share_buffer",
        "repetition_penalty",
        "temperature",
        "top_k",
        "top_p",
    },
}
"""What onnxruntime-genai 0.6 reads: any other key is fatal there."""


@pytest.mark.parametrize(("attention", "shares"), [("gqa", True), ("decomposed", False)])
def test_genai_configuration_has_known_keys_only(make_manifest: Any, attention: str, shares: bool) -> None:
    values = genai_config_json(make_manifest("dynamic", attention), CONFIG, END)
    model, search = values["model"], values["search"]
    assert set(values) == {"model", "search"}
    assert set(model) == KNOWN_TO_GENAI["model"]
    assert set(model["decoder"]) == KNOWN_TO_GENAI["decoder"]
    assert set(search) == KNOWN_TO_GENAI["search"]
    assert search["past_present_share_buffer"] is shares
    assert model["type"] == "decoder"
    assert model["decoder"]["filename"] == "onnx/model.onnx"


def test_genai_may_go_beyond_the_context_only_where_positions_do(make_manifest: Any) -> None:
    free = genai_config_json(make_manifest(), CONFIG, END)
    assert free["search"]["max_length"] == free["model"]["context_length"] == 256
    bound = genai_config_json(make_manifest(), CONFIG.replace(position="learned"), END)
    assert bound["search"]["max_length"] == bound["model"]["context_length"] == 64


def test_genai_names_are_those_of_the_graph(exported: Any) -> None:
    report = exported()
    decoder = _read(report.path, "genai_config.json")["model"]["decoder"]
    assert decoder["head_size"] == report.manifest.model.cache_head_size == 16
    assert decoder["inputs"]["past_key_names"] % 1 == "past_key_values.1.key"
    assert decoder["outputs"]["present_value_names"] % 0 == "present.0.value"


@pytest.mark.parametrize("options", [{"seq_len": 16}, {"kv_cache": False}])
def test_only_a_dynamic_graph_is_described_to_genai(exported: Any, options: Any) -> None:
    assert not (exported(**options).path / "genai_config.json").exists()


def test_every_json_file_ends_with_a_line_and_has_no_escapes(exported: Any) -> None:
    for path in exported().path.glob("*.json"):
        text = path.read_text(encoding="utf-8")
        assert text.endswith("}\n")
        assert "\\u" not in text


def _facts(
    manifest: Any, model_type: str | None = "gpt2", tokenizer: str | None = "byte-level BPE"
) -> BundleFacts:
    return BundleFacts(manifest=manifest, model_type=model_type, tokenizer=tokenizer, data_bytes=(4800,))


def test_readme_says_what_the_bundle_is_and_how_it_runs(make_manifest: Any) -> None:
    text = readme(_facts(make_manifest("dynamic", "gqa", checked=True)))
    for words in (
        "# toy\n",
        "checked against the model in PyTorch",
        "not compared with the original program: export it again with --reference FILE",
        "`parity.json`",
        'gpt-onnx generate . -p "Once upon a time"',
        'og.Tokenizer(model).encode("Once upon a time")',
        "| other clients may pad | right |",
        'openvino.Core().read_model("onnx/model.onnx")',
        'pipeline("text-generation", "path/of/this/folder")',
        "gpt-onnx inspect . --clients",
    ):
        assert words in text, words
    assert "{graph}" not in text
    assert "{genai" not in text


def test_readme_of_the_portable_graph_allows_padding_on_the_left(make_manifest: Any) -> None:
    text = readme(_facts(make_manifest("dynamic", "decomposed")))
    assert "| other clients may pad | left or right |" in text
    assert "ReferenceEvaluator" in text
    assert "cannot see" not in text


def test_readme_warns_clients_that_pad_where_attention_cannot_see_it(make_manifest: Any) -> None:
    text = readme(_facts(make_manifest("dynamic", "gqa")))
    assert (
        text.count("it pads on the left, which GroupQueryAttention cannot see") == 2
    )  # transformers.js, optimum
    assert "ReferenceEvaluator" not in text


@pytest.mark.parametrize("tokenizer", [None, "BPE"])
def test_readme_without_a_tokenizer_of_bytes_gives_ids_to_genai(make_manifest: Any, tokenizer: Any) -> None:
    text = readme(_facts(make_manifest(), tokenizer=tokenizer))
    assert "generator.append_tokens([1, 2, 3])" in text
    assert "og.Tokenizer" not in text


def test_readme_without_a_tokenizer_works_by_ids(make_manifest: Any) -> None:
    text = readme(_facts(make_manifest(), tokenizer=None))
    assert "gpt-onnx generate . --prompt-ids 1,2,3" in text
    assert "from gpt_onnx import OnnxGPT" in text


def test_readme_names_a_client_only_where_it_can_run_the_graph(make_manifest: Any) -> None:
    def clients(layout: str, model_type: str | None) -> set[str]:
        text = readme(_facts(make_manifest(layout), model_type))
        named = ("onnxruntime_genai", "transformers.js", "openvino", "ORTModel", "`input_ids` (int64)")
        return {name for name in named if name in text}

    every = {"onnxruntime_genai", "transformers.js", "openvino", "ORTModel"}
    assert clients("dynamic", "gpt2") == clients("dynamic", "llama") == every
    assert clients("dynamic", None) == {"openvino"}
    assert clients("static", "gpt2") == {"openvino"}
    assert clients("plain", None) == {"openvino", "`input_ids` (int64)"}


OTHERS = {
    ("sinusoidal", "gpt2"): "The model is no GPT-2: its positions are sinusoidal.",
    ("alibi", "gpt2"): "The model is no GPT-2: its positions are alibi.",
    ("learned", "llama"): "The model is no Llama: its positions are learned.",
    ("learned", "gpt2"): None,
    ("rotary", "llama"): None,
    ("sinusoidal", None): None,
}


@pytest.mark.parametrize(("position", "model_type"), OTHERS)
def test_readme_says_when_clients_take_the_model_for_another(
    make_manifest: Any, position: str, model_type: str | None
) -> None:
    manifest = make_manifest()
    model = dataclasses.replace(manifest.model, position=position)
    text, words = readme(_facts(manifest.replace(model=model), model_type)), OTHERS[position, model_type]
    assert ("fine-tune" in text) == (words is not None)
    assert words is None or words in text


def test_readme_tells_checks_and_notes(make_manifest: Any) -> None:
    unchecked = readme(_facts(make_manifest(checked=False)), notes=("Mind the gap.",))
    assert "It was NOT compared with the model it was made from (`checked: false`)." in unchecked
    assert "parity.json" not in unchecked
    assert "\nMind the gap.\n" in unchecked
    compared = readme(_facts(make_manifest(checked=True, compared_with_original=True)))
    assert "It was compared with the original program." in compared
