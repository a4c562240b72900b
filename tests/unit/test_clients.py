"""The files for other clients: config.json, generation_config.json, genai_config.json, README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.checkpoint import TokenizerFiles
from gpt_onnx.config import GPTConfig
from gpt_onnx.export.clients import config_json, genai_config_json, generation_config_json, special_ids
from gpt_onnx.export.readme import readme

CONFIG = GPTConfig(vocab_size=89, context_length=64, n_embd=48, n_layer=2, n_head=3)
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
    values = config_json(make_manifest(), CONFIG, END)
    assert values["model_type"] == "gpt2"
    assert (values["n_layer"], values["n_head"], values["n_embd"], values["n_positions"]) == (2, 3, 48, 64)
    assert values["transformers.js_config"] == {"use_external_data_format": 1}
    assert values["eos_token_id"] == 0
    assert GPTConfig.from_dict(values["gpt_onnx"]) == CONFIG


def test_a_module_of_anybodys_claims_no_architecture(make_manifest: Any) -> None:
    values = config_json(make_manifest("plain"), None, {})
    assert values == {"model_type": "gpt_onnx", "vocab_size": 11, "n_positions": 32}


def test_generation_defaults() -> None:
    values = generation_config_json(END)
    assert values["pad_token_id"] == values["eos_token_id"] == 0
    assert (values["temperature"], values["top_k"], values["top_p"]) == (0.8, 50, 1.0)
    assert "pad_token_id" not in generation_config_json({})


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


def test_readme_says_what_the_bundle_is_and_how_it_runs(make_manifest: Any) -> None:
    text = readme(make_manifest("dynamic", "gqa"), CONFIG, has_tokenizer=True)
    for words in (
        "# toy\n",
        "checked against the model in PyTorch",
        "not compared with the original program's own numbers",
        "`parity.json`",
        'gpt-onnx generate . -p "Once upon a time"',
        "onnxruntime_genai",
        "| other clients may pad | right |",
        'openvino.Core().read_model("onnx/model.onnx")',
    ):
        assert words in text, words
    assert "{" not in text.replace('{dtype: "fp32"}', "")


def test_readme_of_the_portable_graph_allows_padding_on_the_left(make_manifest: Any) -> None:
    text = readme(make_manifest("dynamic", "decomposed"), CONFIG, has_tokenizer=True)
    assert "| other clients may pad | left or right |" in text


def test_readme_without_a_tokenizer_works_by_ids(make_manifest: Any) -> None:
    text = readme(make_manifest(), CONFIG, has_tokenizer=False)
    assert "gpt-onnx generate . --prompt-ids 1,2,3" in text
    assert "from gpt_onnx import OnnxGPT" in text
    assert "genai" not in text
    assert "transformers.js" not in text


def test_readme_names_a_client_only_where_it_can_run_the_graph(make_manifest: Any) -> None:
    def clients(layout: str, config: GPTConfig | None) -> set[str]:
        text = readme(make_manifest(layout), config, has_tokenizer=True)
        return {
            name for name in ("genai", "transformers.js", "openvino", "`input_ids` (int64)") if name in text
        }

    fits = GPTConfig(
        vocab_size=11, context_length=32, n_embd=24, n_layer=2, n_head=3
    )  # heads of 8, as cached
    assert clients("dynamic", fits) == {"genai", "transformers.js", "openvino"}
    assert clients("dynamic", CONFIG) == {"genai", "openvino"}
    assert clients("dynamic", fits.replace(n_kv_head=1)) == {"genai", "openvino"}
    assert clients("static", fits) == set()
    assert clients("plain", None) == {"openvino", "`input_ids` (int64)"}


def test_readme_tells_checks_and_notes(make_manifest: Any) -> None:
    unchecked = readme(make_manifest(checked=False), CONFIG, has_tokenizer=False, notes=("Mind the gap.",))
    assert "It was NOT compared with the model it was made from (`checked: false`)." in unchecked
    assert "parity.json" not in unchecked
    assert "\nMind the gap.\n" in unchecked
    compared = readme(make_manifest(compared_with_original=True), CONFIG, has_tokenizer=False)
    assert "compared with numbers that the original program wrote, too" in compared
