"""Names that people give to the parts of a GPT, and names that could mean two things."""

from __future__ import annotations

import pytest

from gpt_onnx.checkpoint.spellings import is_mask, spelled


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("token_embedding.weight", "wte.weight"),
        ("tokenEmbedding.weight", "wte.weight"),
        ("tok_emb.weight", "wte.weight"),
        ("model.embed_tokens.weight", "wte.weight"),
        ("embedding.embedding.weight", "wte.weight"),
        ("embeddings.token.weight", "wte.weight"),
        ("transformer.wte.weight", "wte.weight"),
        ("wte", "wte.weight"),
        ("position_embedding_table.weight", "wpe.weight"),
        ("positional_encoding.pe", "wpe.weight"),
        ("pos_emb", "wpe.weight"),
        ("blocks.{layer}.mha.heads.{head}.query.weight", "h.{layer}.attn.q.{head}.weight"),
        ("blocks.{layer}.sa.heads.{head}.key.bias", "h.{layer}.attn.k.{head}.bias"),
        ("layers.{layer}.attention.head_{head}.W_v.weight", "h.{layer}.attn.v.{head}.weight"),
        ("block{layer}.attn.head{head}.q.weight", "h.{layer}.attn.q.{head}.weight"),
        ("gpt.layers.{layer}.self_attn.q_proj.weight", "h.{layer}.attn.q.weight"),
        ("transformer.h.{layer}.attn.c_attn.bias", "h.{layer}.attn.c_attn.bias"),
        ("transformer.{layer}.attn.c_attn.weight", "h.{layer}.attn.c_attn.weight"),
        ("layers.{layer}.self_attn.in_proj_weight", "h.{layer}.attn.c_attn.weight"),
        ("blocks.{layer}.attn.mha.out_proj.weight", "h.{layer}.attn.c_proj.weight"),
        ("blocks.{layer}.mha.wo.weight", "h.{layer}.attn.c_proj.weight"),
        ("blocks.{layer}.ffwd.net.0.weight", "h.{layer}.mlp.c_fc.weight"),
        ("blocks.{layer}.ffwd.net.2.bias", "h.{layer}.mlp.c_proj.bias"),
        ("blocks.{layer}.ff.3.weight", "h.{layer}.mlp.c_proj.weight"),
        ("h.{layer}.mlp.c_proj.weight", "h.{layer}.mlp.c_proj.weight"),
        ("layers.{layer}.linear1.weight", "h.{layer}.mlp.c_fc.weight"),
        ("layers.{layer}.feed_forward.gate_proj.weight", "h.{layer}.mlp.c_gate.weight"),
        ("layers.{layer}.feed_forward.fc2.weight", "h.{layer}.mlp.c_proj.weight"),
        ("blocks.{layer}.layerNorm1.gamma", "h.{layer}.ln_1.weight"),
        ("blocks.{layer}.norm2.beta", "h.{layer}.ln_2.bias"),
        ("blocks.{layer}.ffn_norm.weight", "h.{layer}.ln_2.weight"),
        ("final_norm.weight", "ln_f.weight"),
        ("ln.bias", "ln_f.bias"),
        ("transformer.norm.weight", "ln_f.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("fc_out.bias", "lm_head.bias"),
        ("decoder.weight", "lm_head.weight"),
    ],
)
def test_usual_names_are_known(theirs: str, ours: str) -> None:
    found = spelled([theirs.format(layer=11, head=2)])
    assert [(name.theirs, name.ours) for name in found.naming.names] == [(theirs, ours)]
    assert not found.unknown
    assert not found.clashes


@pytest.mark.parametrize(
    "name",
    [
        "blocks.0.mha.qkv.weight",  # heads may be interleaved
        "blocks.0.ff.w1.weight",  # which of w1 and w3 is the gate is a habit
        "blocks.0.ff.w3.weight",
        "blocks.0.cross_attn.key.weight",
        "blocks.0.ln3.weight",
        "blocks.0.alpha",
        "ema.wte.weight",
        "blocks.0.mha.heads.0.query.scale",
    ],
)
def test_names_that_could_mean_more_than_one_thing_are_unknown(name: str) -> None:
    assert spelled([name]).unknown == (name,)


@pytest.mark.parametrize(
    "names",
    [
        ("fc.weight", "lm_head.weight"),
        ("encoder.layers.0.norm1.weight", "decoder.layers.0.norm1.weight"),
        ("blocks.0.ff.0.weight", "blocks.0.ff.up.weight"),
        ("blocks.0.ff.1.weight", "blocks.0.ff.3.weight"),
        ("tok_emb.weight", "wte.weight"),
    ],
)
def test_two_names_of_one_weight_clash(names: tuple[str, ...]) -> None:
    (clash,) = spelled(names).clashes
    assert "would both be" in clash


@pytest.mark.parametrize(
    "name", ["h.3.attn.bias", "blocks.0.sa.heads.2.tril", "causal_mask", "h.0.attn.mask"]
)
def test_masks_are_no_weights(name: str) -> None:
    found = spelled([name])
    assert is_mask(name)
    assert not found.unknown
    assert found.naming.ignores(name)


def test_state_of_the_training_is_no_weight() -> None:
    names = ["optimizer.state.0.exp_avg", "optimizer.state.11.exp_avg", "iteration"]
    found = spelled(names)
    assert not found.unknown
    assert all(found.naming.ignores(name) for name in names)
    assert len(found.naming.ignored) == 2  # one pattern for all numbers


def test_many_layers_and_heads_are_few_lines() -> None:
    names = [f"blocks.{i}.mha.heads.{j}.key.weight" for i in range(48) for j in range(25)]
    assert len(spelled(names).naming.names) == 1
