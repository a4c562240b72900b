"""The table of clients: which bundle runs where, since which version, and the sentence where it does not."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpt_onnx.clients import (
    CLIENTS,
    GENAI,
    ONNXRUNTIME,
    OPENVINO,
    OPTIMUM,
    REFERENCE,
    TRANSFORMERS_JS,
    WEB,
    BundleFacts,
    Client,
    Verdict,
    is_older,
    judge,
    known_model_type,
    tokenizer_kind,
    verdicts,
)
from tests.integer_weights import INT4


def _facts(manifest: Any, **changes: Any) -> BundleFacts:
    values = {"model_type": "gpt2", "tokenizer": "byte-level BPE", "data_bytes": (4800,)}
    return BundleFacts(manifest=manifest, **(values | changes))


def _runs(facts: BundleFacts) -> set[str]:
    return {verdict.client.name for verdict in verdicts(facts) if verdict.runs}


def _verdict(client: Client, facts: BundleFacts) -> Verdict:
    return judge(client, facts)


EVERY = {client.name for client in CLIENTS}


def test_a_portable_bundle_runs_everywhere_without_conditions(make_manifest: Any) -> None:
    facts = _facts(make_manifest("dynamic", "decomposed"))
    assert _runs(facts) == EVERY
    assert [verdict.client.name for verdict in verdicts(facts) if verdict.limits] == [TRANSFORMERS_JS.name]
    assert "in a browser only with --target web" in _verdict(TRANSFORMERS_JS, facts).limits[0]


def test_fused_operators_are_no_standard(make_manifest: Any) -> None:
    facts = _facts(make_manifest("dynamic", "gqa"))
    assert _runs(facts) == EVERY - {REFERENCE.name}
    [fault] = _verdict(REFERENCE, facts).faults
    assert fault == "its graph has operators of com.microsoft; export with --target portable"


@pytest.mark.parametrize("layout", ["static", "plain"])
def test_clients_with_a_loop_of_their_own_want_one_graph_with_a_cache(
    make_manifest: Any, layout: str
) -> None:
    facts = _facts(make_manifest(layout, "decomposed"))
    assert _runs(facts) == EVERY - {GENAI.name, TRANSFORMERS_JS.name, OPTIMUM.name}
    assert _verdict(GENAI, facts).faults[0].startswith(f"its layout is {layout} and this client feeds")


@pytest.mark.parametrize("layout", ["static", "plain"])
def test_attention_that_reads_a_prompt_without_a_cache_is_none_for_openvino(
    make_manifest: Any, layout: str
) -> None:
    [fault] = _verdict(OPENVINO, _facts(make_manifest(layout, "gqa"))).faults
    assert fault.startswith(
        f"its layout is {layout}, whose GroupQueryAttention reads a prompt without a cache"
    )
    assert _verdict(OPENVINO, _facts(make_manifest("dynamic", "gqa"))).runs


def test_a_module_of_anybodys_tells_no_cache(make_manifest: Any) -> None:
    facts = _facts(make_manifest("plain", "traced"), model_type=None)
    assert not _runs(facts) & {GENAI.name, TRANSFORMERS_JS.name, OPTIMUM.name}


def test_padding_on_the_left_is_warned_of_where_attention_cannot_see_it(make_manifest: Any) -> None:
    facts = _facts(make_manifest("dynamic", "gqa"))
    warned = {
        v.client.name for v in verdicts(facts) if any("pads on the left" in limit for limit in v.limits)
    }
    assert warned == {TRANSFORMERS_JS.name, OPTIMUM.name}
    assert "one prompt at a time" in _verdict(OPENVINO, facts).limits[0]


@pytest.mark.parametrize(("kind", "words"), [(None, "no tokenizer"), ("Unigram", "its tokenizer is Unigram")])
def test_genai_wants_a_tokenizer_of_bytes(make_manifest: Any, kind: Any, words: str) -> None:
    verdict = _verdict(GENAI, _facts(make_manifest(), tokenizer=kind))
    assert verdict.runs
    assert words in verdict.limits[0]


def test_a_file_that_browsers_cannot_hold_is_told_with_its_size(make_manifest: Any) -> None:
    facts = _facts(make_manifest(), data_bytes=(10, 2 * 10**9))
    assert _runs(facts) == EVERY - {WEB.name, TRANSFORMERS_JS.name}
    assert "2,000,000,000 bytes" in _verdict(WEB, facts).faults[0]
    assert WEB.name in _runs(_facts(make_manifest(), data_bytes=(2 * 10**9 - 1,) * 2))


def _quantized(make_manifest: Any, attention: str, level: int) -> BundleFacts:
    info = dataclasses.replace(INT4, accuracy_level=level)
    return _facts(make_manifest("dynamic", attention, precision="int4", quantization=info))


def test_clients_that_never_round_activations_are_told(make_manifest: Any) -> None:
    rounded, exact = (_quantized(make_manifest, "decomposed", level) for level in (4, 0))
    assert "does not round activations" in _verdict(OPENVINO, rounded).limits[0]
    assert not _verdict(OPENVINO, exact).limits
    assert not _verdict(ONNXRUNTIME, rounded).limits
    assert 'session.qdq_matmulnbits_accuracy_level to "0"' in _verdict(ONNXRUNTIME, exact).limits[0]


def test_small_webassembly_runs_target_web_and_learned_positions_in_float32(make_manifest: Any) -> None:
    def is_warned(**changes: Any) -> bool:
        position = changes.pop("position", "sinusoidal")
        manifest = make_manifest("dynamic", "gqa", **changes)
        model = dataclasses.replace(manifest.model, position=position)
        limits = _verdict(TRANSFORMERS_JS, _facts(manifest.replace(model=model))).limits
        return any("in a browser only" in limit for limit in limits)

    assert not is_warned(target="web")
    assert is_warned(target="cpu")
    assert not is_warned(target="cpu", position="learned")
    assert is_warned(target="cpu", position="learned", precision="int4", quantization=INT4)


def test_integers_that_browsers_multiply_slowly_are_told(make_manifest: Any) -> None:
    fused, standard = (_quantized(make_manifest, attention, 4) for attention in ("gqa", "decomposed"))
    assert "for speed export with --target portable" in _verdict(WEB, fused).limits[0]
    assert 'session.disable_quant_qdq to "1"' in _verdict(WEB, standard).limits[0]
    assert not _verdict(WEB, _facts(make_manifest("dynamic", "gqa"))).limits


def test_openvino_takes_a_tied_table_of_integers_in_standard_operators_alone(make_manifest: Any) -> None:
    fused, standard = (_quantized(make_manifest, attention, 0) for attention in ("gqa", "decomposed"))
    tied = dataclasses.replace(fused, tied=True)
    assert "--head-precision fp32" in _verdict(OPENVINO, tied).faults[0]
    assert _verdict(OPENVINO, fused).runs
    learned = dataclasses.replace(tied.manifest.model, position="learned")
    as_it_is = tied.manifest.replace(target="web", model=learned)
    assert _verdict(OPENVINO, dataclasses.replace(tied, manifest=as_it_is)).runs
    assert _verdict(OPENVINO, dataclasses.replace(standard, tied=True)).runs


@pytest.mark.parametrize(
    ("target", "position", "runs"),
    [
        ("web", "sinusoidal", False),
        ("web", "rotary", False),
        ("web", "learned", True),
        ("cpu", "rotary", True),
    ],
)
def test_openvino_computes_no_angles_in_int64(
    make_manifest: Any, target: str, position: str, runs: bool
) -> None:
    manifest = make_manifest("dynamic", "gqa", target=target)
    model = dataclasses.replace(manifest.model, position=position)
    verdict = _verdict(OPENVINO, _facts(manifest.replace(model=model)))
    assert verdict.runs == runs
    assert runs or "in int32 and, silently, wrongly" in verdict.faults[0]


def test_the_oldest_version_is_that_of_what_the_bundle_has(make_manifest: Any) -> None:
    plain, fused = _facts(make_manifest()), _quantized(make_manifest, "gqa", 4)
    assert _verdict(ONNXRUNTIME, plain).oldest == ONNXRUNTIME.tried[0]
    newer = {since.version for since in ONNXRUNTIME.since if since.holds(fused)}
    assert _verdict(ONNXRUNTIME, fused).oldest == max({ONNXRUNTIME.tried[0], *newer}, key=_parts)


def _parts(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def test_versions_are_compared_by_their_numbers() -> None:
    assert is_older("1.9.2", "1.20.0")
    assert not is_older("1.20.0", "1.20.0")
    assert is_older("2026.4.1", "2026.10.0")


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_versions_of_an_entry_go_from_old_to_new(client: Client) -> None:
    assert list(client.tried) == sorted(client.tried, key=_parts)
    assert all(not is_older(since.version, client.tried[0]) for since in client.since)
    assert all(not is_older(client.newest, since.version) for since in client.since)


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_sentences_of_an_entry_can_be_filled_in(client: Client, make_manifest: Any) -> None:
    words = _facts(make_manifest()).words
    for condition in (*client.needs, *client.limits):
        assert "{" not in condition.otherwise.format(**words)


KINDS: dict[str, dict[str, Any]] = {
    "byte-level BPE": {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "ByteLevel"}},
    "BPE": {"model": {"type": "BPE"}, "pre_tokenizer": {"type": "WhitespaceSplit"}},
    "Unigram": {"model": {"type": "Unigram"}, "decoder": None},
    "unknown": {"model": None},
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_tokenizers(kind: str) -> None:
    assert tokenizer_kind(KINDS[kind]) == kind


def test_bytes_may_be_one_step_of_a_sequence() -> None:
    steps = {"type": "Sequence", "pretokenizers": [{"type": "Split"}, {"type": "ByteLevel"}]}
    assert tokenizer_kind({"model": {"merges": []}, "pre_tokenizer": steps}) == "byte-level BPE"


def test_model_types_that_tell_the_cache() -> None:
    assert [known_model_type({"model_type": name}) for name in ("gpt2", "llama", "gpt_onnx", 3)] == [
        "gpt2",
        "llama",
        None,
        None,
    ]


def test_the_table_needs_neither_torch_nor_onnx() -> None:
    code = "import gpt_onnx.clients, sys; print([m for m in ('torch', 'onnx', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_page_has_the_versions_of_the_table() -> None:
    page = (Path(__file__).parents[2] / "docs" / "clients.md").read_text(encoding="utf-8")
    rows = [line.split(" | ")[:2] for line in page.splitlines() if line.startswith("| ")]
    told = {cells[0].removeprefix("| "): cells[1] for cells in rows if len(cells) == 2}
    for client in CLIENTS:
        ends = dict.fromkeys((client.tried[0], client.newest))
        assert told[client.name] == " to ".join(ends), client.name
