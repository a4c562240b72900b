"""How people call the parts of a GPT that they write themselves, and the table of names that follows.

    >>> spelled(["tok_emb.weight", "blocks.0.mha.heads.1.query.weight"]).naming.names
    (Name('tok_emb.weight', 'wte.weight'),
     Name('blocks.{layer}.mha.heads.{head}.query.weight', 'h.{layer}.attn.q.{head}.weight'))

A word stands here only if it can mean one thing in its place; upper case and underscores do not count, so
that ``tokenEmbedding`` is ``token_embedding``. Words whose order or meaning differs between programs are left
out on purpose: ``qkv`` may interleave heads, and which of ``w1`` and ``w3`` is the gate is a habit. Where two
tensors would be one weight, or a name is in no list, a table of names (``--names FILE``) has to say it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpt_onnx.checkpoint.names import Name, Naming
from gpt_onnx.checkpoint.rotary_tables import is_rotary_table


def _any(*words: str) -> str:
    """Return an expression of any of some words, with or without their underscores."""
    return f"(?:{'|'.join(word.replace('_', '_?') for word in words)})_?"


def _numbered(place: str, *words: str) -> str:
    """Return an expression of a word with a number behind it: ``heads.0``, ``head_0`` or ``head0``."""
    return rf"{_any(*words)}\.?(?P<{place}>[0-9]{{1,6}})"


ROOT = rf"(?:{_any('model', 'gpt', 'net', 'network', 'module', 'transformer', 'decoder', 'encoder')}\.)*"
TABLES = rf"{ROOT}(?:{_any('embed', 'embeddings?')}\.)?"
TOKEN = _any(
    *("wte", "token", "tok"),
    *("embed", "emb", "embeddings?", "embed_tokens", "embedding_table", "input_embeddings?"),
    *(f"tok(?:en)?s?_{word}" for word in ("emb", "embd", "embed", "embeddings?", "embedding_table")),
    *("word_emb", "word_embeddings?"),
)
POSITION = _any(
    "wpe",
    *("pe", "pos", "position", "positional", "embed_positions"),
    *(
        f"pos(?:ition)?(?:al)?_{word}"
        for word in ("emb", "embd", "embed", "embeddings?", "embedding_table", "enc", "encodings?", "encoder")
    ),
)
INNER_TABLE = _any(
    "embedding", "embed", "emb", "table", "lut", "pe", "pos_embedding", "encoding", "wpe", "wte"
)
BLOCK = _numbered(
    "layer",
    *("blocks?", "layers?", "h", "transformer", "decoders?", "encoders?"),
    *(
        f"{first}_{word}"
        for first in ("transformer", "decoder", "encoder")
        for word in ("blocks?", "layers?")
    ),
)
ATTENTION = _any(
    *("mha", "mhsa", "msa", "csa", "sa", "attn", "att", "attention", "sa_heads?"),
    *("self_attn", "self_attention", "causal_attention", "causal_self_attention", "masked_attention"),
    *("multi_head", "multi_head_attention", "multi_head_self_attention"),
)
HEAD = _numbered("head", "heads?", "attn_heads?", "attention_heads?")
PROJECTION = _any(
    *("proj", "projection", "out", "output", "out_proj", "output_proj", "o_proj", "c_proj", "proj_out"),
    *("o", "wo", "w_o", "dense", "out_linear", "linear_out", "out_projection", "output_projection", "fc_out"),
)
FEED_FORWARD = _any(
    *("ff", "ffn", "ffnn", "ffwd", "feed_forward", "feed_forward_network", "mlp", "ff_net"),
)
INNER_NET = _any("net", "network", "layers?", "seq", "sequential", "mlp", "ff", "model")
UP = _any("fc1", "fc_1", "linear1", "linear_1", "lin1", "l1", "c_fc", "up", "up_proj", "fc_in", "dense1")
DOWN = _any("fc2", "fc_2", "linear2", "linear_2", "lin2", "l2", "down", "down_proj", "fc_out", "dense2")
NORM = ("ln", "norm", "layer_norm", "rms_norm", "rms")
NORM_1 = _any(
    *(f"{word}_?1" for word in NORM),
    *(f"{part}_{word}" for part in ("attn", "attention", "sa", "mha") for word in ("ln", "norm")),
    *(f"{word}_{part}" for part in ("attn", "attention", "sa", "mha") for word in ("ln", "norm")),
)
NORM_2 = _any(
    *(f"{word}_?2" for word in NORM),
    *(f"{part}_{word}" for part in ("ff", "ffn", "mlp", "ffwd") for word in ("ln", "norm")),
    *(f"{word}_{part}" for part in ("ff", "ffn", "mlp", "ffwd") for word in ("ln", "norm")),
)
FINAL = _any(
    *NORM,
    *(f"{word}_{end}" for word in ("ln", "norm", "layer_norm") for end in ("f", "final", "out")),
    *(
        f"{start}_{word}"
        for word in ("ln", "norm", "layer_norm")
        for start in ("f", "final", "out", "output")
    ),
)
LM_HEAD = _any(
    *("head", "lm_head", "lm", "out_head", "output_head", "fc", "fc_out", "output", "out", "output_layer"),
    *("proj", "projection", "out_proj", "output_proj", "output_projection", "linear", "final_linear"),
    *("unembed", "unembedding", "decoder", "classifier", "to_logits", "logits", "generator"),
)
LAYER, ATTN = rf"{ROOT}{BLOCK}\.", rf"{ROOT}{BLOCK}\.{ATTENTION}\.(?:{ATTENTION}\.)?"
NET = rf"{ROOT}{BLOCK}\.{FEED_FORWARD}\.(?:{INNER_NET}\.)?"

QUERIES = {
    part: _any(
        part, f"w_?{part}", f"{part}_proj", f"proj_{part}", f"{part}_lin(?:ear)?", f"to_{part}", *words
    )
    for part, *words in (
        ("q", "query", "queries", "query_proj", "w_query"),
        ("k", "key", "keys", "key_proj", "w_key"),
        ("v", "value", "values", "value_proj", "w_value"),
    )
}
LINEAR = {"weight": r"\.weight", "bias": r"\.bias"}
NORM_PARTS = {"weight": r"\.(?:weight|gamma)", "bias": r"\.(?:bias|beta)"}
RAW = rf"(?:\.{INNER_TABLE})?"  # a table may be a module in a module, or a parameter with no name of its own
TABLE = {"weight": rf"{RAW}(?:\.weight)?"}
PARTS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("wte", TABLES + TOKEN, TABLE),
    ("wpe", TABLES + POSITION, TABLE),
    ("h.{layer}.ln_1", LAYER + NORM_1, NORM_PARTS),
    *(
        (f"h.{{layer}}.attn.{part}.{{head}}", f"{ATTN}{HEAD}\\.{words}", LINEAR)
        for part, words in QUERIES.items()
    ),
    *((f"h.{{layer}}.attn.{part}", f"{ATTN}{words}", LINEAR) for part, words in QUERIES.items()),
    ("h.{layer}.attn.c_attn", f"{ATTN}c_?attn", LINEAR),
    ("h.{layer}.attn.c_attn", f"{ATTN}in_proj", {"weight": "_weight", "bias": "_bias"}),
    ("h.{layer}.attn.c_proj", ATTN + PROJECTION, LINEAR),
    ("h.{layer}.ln_2", LAYER + NORM_2, NORM_PARTS),
    ("h.{layer}.mlp.c_fc", f"{NET}(?:0|{UP})", LINEAR),
    ("h.{layer}.mlp.c_fc", LAYER + UP, LINEAR),
    ("h.{layer}.mlp.c_gate", f"{NET}{_any('gate', 'gate_proj', 'c_gate')}", LINEAR),
    ("h.{layer}.mlp.c_proj", f"{NET}(?:[1-9]|{DOWN}|c_?proj|proj)", LINEAR),
    ("h.{layer}.mlp.c_proj", LAYER + DOWN, LINEAR),
    ("ln_f", ROOT + FINAL, NORM_PARTS),
    ("lm_head", ROOT + LM_HEAD, LINEAR),
)
"""Our part, how it is called, and the ends of its weight and bias."""
MASKS = re.compile(
    rf"(?:.*\.)?{_any('tril', 'mask', 'causal_mask', 'attn_mask', 'attention_mask')}", re.IGNORECASE
)
MASKS_IN_ATTENTION = re.compile(rf"{ATTN}(?:bias|masked_bias)", re.IGNORECASE)
"""GPT-2's causal mask is called bias, and lies where no weight does."""
PROGRESS = _any("step", "steps", "iter", "iteration", "epoch", "loss", "best_loss", "lr", "learning_rate")
OTHERS = re.compile(rf"optim(?:i[sz]er)?s?\..*|{PROGRESS}", re.IGNORECASE)
"""What a training program stores beside its weights."""
PLACE = re.compile(r"(?<![^.])[0-9]+(?![^.])")

LINES = tuple(
    (re.compile(stem + end, re.IGNORECASE), f"{ours}.{kind}")
    for ours, stem, ends in PARTS
    for kind, end in ends.items()
)


@dataclass(frozen=True, slots=True)
class Spelled:
    """What the lists make of a file's names."""

    naming: Naming
    unknown: tuple[str, ...]
    """Stored names that are in no list."""
    clashes: tuple[str, ...]
    """What would be two things at once, a clause of a sentence each."""


def _pattern_of(match: re.Match[str]) -> str:
    """Return a stored name with its layer and its head exchanged for places."""
    name = match.string
    spans = {match.span(place): place for place in match.groupdict()}
    for (start, stop), place in sorted(spans.items(), reverse=True):
        name = f"{name[:start]}{{{place}}}{name[stop:]}"
    return name


def _meanings(name: str) -> Iterator[tuple[str, str]]:
    """Yield what a stored name may be: our pattern, and its own."""
    for line, ours in LINES:
        if match := line.fullmatch(name):
            yield ours, _pattern_of(match)


def is_mask(name: str) -> bool:
    """Whether a name is a causal mask's, a buffer and no weight."""
    return any(words.fullmatch(name) for words in (MASKS, MASKS_IN_ATTENTION))


def is_no_weight(name: str) -> bool:
    """Whether a name is that of a buffer, or of what a training program stores beside its weights."""
    return is_mask(name) or is_rotary_table(name) or OTHERS.fullmatch(name) is not None


def _generic(name: str) -> str:
    """Return a name with its first two numbers exchanged for places, so that few patterns ignore many."""
    for place in ("layer", "head"):
        name = PLACE.sub(f"{{{place}}}", name, count=1)
    return name


def _clashes(found: dict[str, set[str]]) -> Iterator[str]:
    for ours, patterns in found.items():
        if len(patterns) > 1:
            first, second, *_ = sorted(patterns)
            yield f"{first} and {second} would both be {ours}"


def spelled(names: Iterable[str]) -> Spelled:
    """Look every name up; a table is whole where neither unknown names nor clashes are left."""
    ours: dict[str, set[str]] = defaultdict(set)
    theirs: dict[str, set[str]] = defaultdict(set)
    ignored, unknown = set(), []
    for name in names:
        meanings = set(_meanings(name))
        for mine, pattern in meanings:
            ours[mine].add(pattern)
            theirs[pattern].add(mine)
        if not meanings and is_no_weight(name):
            ignored.add(_generic(name))
        elif not meanings:
            unknown.append(name)
    twice = (f"{pattern} could be {' or '.join(sorted(m))}" for pattern, m in theirs.items() if len(m) > 1)
    lines = tuple(Name(pattern, mine) for mine, patterns in ours.items() for pattern in sorted(patterns))
    return Spelled(Naming(lines, tuple(sorted(ignored))), tuple(unknown), (*_clashes(ours), *twice))
