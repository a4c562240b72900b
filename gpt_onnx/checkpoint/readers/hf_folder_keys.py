"""Keys of config.json that mean the same in every family: what computes nothing, and what must not.

A key that would change what is computed, in a way that our GPT lacks, may only have a value that changes
nothing. A key that is on no list is passed over, as transformers does, and the user is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Neutral:
    """A key that may have no effect."""

    values: tuple[Any, ...]
    """What it may be, besides null and absent."""
    meaning: str
    """What other values do, e.g. "a factor on the logits"."""


_ONE = (1,)
_OFF = (False, 0)
_EXPERTS = "a choice among several feed-forward networks (experts)"
_FACTOR = "a factor on activations"
_CAP = "a soft limit on activations"
_PARTIAL = "rotary positions on a part of each head"
_QK_NORM = "a norm on each head's queries and keys"
_NO_ROPE = "layers without rotary positions"

NEUTRAL: Mapping[str, Neutral] = {
    "quantization_config": Neutral((), "weights that are stored quantised"),
    "compression_config": Neutral((), "weights that are stored compressed"),
    "num_experts": Neutral(_OFF, _EXPERTS),
    "num_local_experts": Neutral(_OFF, _EXPERTS),
    "n_routed_experts": Neutral(_OFF, _EXPERTS),
    "num_experts_per_tok": Neutral(_OFF, _EXPERTS),
    "moe_intermediate_size": Neutral(_OFF, _EXPERTS),
    "logit_scale": Neutral(_ONE, "a factor on the logits"),
    "logits_scaling": Neutral(_ONE, "a divisor of the logits"),
    "embedding_multiplier": Neutral(_ONE, _FACTOR),
    "residual_multiplier": Neutral(_ONE, _FACTOR),
    "attention_multiplier": Neutral((), "a scale of attention of its own"),
    "scale_emb": Neutral(_ONE, _FACTOR),
    "scale_depth": Neutral((), _FACTOR),
    "mup_width_scale": Neutral(_ONE, _FACTOR),
    "mup_embeddings_scale": Neutral(_ONE, _FACTOR),
    "mup_output_alpha": Neutral(_ONE, _FACTOR),
    "scale_embedding": Neutral(_OFF, _FACTOR),
    "query_pre_attn_scalar": Neutral((), "a scale of attention of its own"),
    "final_logit_softcapping": Neutral(_OFF, _CAP),
    "attn_logit_softcapping": Neutral(_OFF, _CAP),
    "clip_qkv": Neutral(_OFF, "a limit on queries, keys and values"),
    "partial_rotary_factor": Neutral(_ONE, _PARTIAL),
    "rotary_pct": Neutral(_ONE, _PARTIAL),
    "rope_pct": Neutral(_ONE, _PARTIAL),
    "rope_interleaved": Neutral(_OFF, "rotary positions that pair neighbouring elements"),
    "qk_norm": Neutral(_OFF, _QK_NORM),
    "use_qk_norm": Neutral(_OFF, _QK_NORM),
    "qk_layernorm": Neutral(_OFF, _QK_NORM),
    "use_mrope": Neutral(_OFF, "rotary positions that turn by places in an image too"),
    "no_rope_layers": Neutral(([],), _NO_ROPE),
    "no_rope_layer_interval": Neutral(_OFF, _NO_ROPE),
    "alibi": Neutral(_OFF, "positions as a bias on the scores"),
    "use_alibi": Neutral(_OFF, "positions as a bias on the scores"),
    "parallel_attn": Neutral(_OFF, "attention and feed-forward network side by side"),
    "use_parallel_residual": Neutral(_OFF, "attention and feed-forward network side by side"),
    "attention_chunk_size": Neutral((), "attention within chunks"),
    "use_sliding_window": Neutral(_OFF, "attention to a window of the last tokens in some layers"),
    "is_causal": Neutral(_ONE, "attention to the tokens behind as well"),
    "use_bidirectional_attention": Neutral(_OFF, "attention to the tokens behind as well"),
    "add_cross_attention": Neutral(_OFF, "attention to an encoder"),
    "is_encoder_decoder": Neutral(_OFF, "an encoder"),
    "cross_attention_hidden_size": Neutral((), "attention to an encoder"),
    "tie_encoder_decoder": Neutral(_OFF, "an encoder"),
    "pruned_heads": Neutral(({},), "heads that were taken out of some layers"),
    "per_layer_config": Neutral(({},), "layers that differ from one another"),
    "block_configs": Neutral(([],), "layers that differ from one another"),
    "chunk_size_feed_forward": Neutral((0,), "a feed-forward network in chunks"),
}
"""Keys that other families compute with."""

_NAMES = """
model_type _num_labels architectures auto_map transformers_version _name_or_path name_or_path
torch_dtype dtype
initializer_range use_cache return_dict output_hidden_states output_attentions output_scores
torchscript use_bfloat16 tf_legacy_loss tie_last_hidden_states is_decoder gradient_checkpointing
pretraining_tp attention_dropout attention_probs_dropout_prob hidden_dropout_prob resid_pdrop
embd_pdrop attn_pdrop hidden_dropout classifier_dropout bos_token_id eos_token_id pad_token_id
sep_token_id decoder_start_token_id forced_bos_token_id forced_eos_token_id suppress_tokens
begin_suppress_tokens bad_words_ids prefix do_sample temperature top_k top_p typical_p min_p
repetition_penalty length_penalty max_length min_length num_beams num_beam_groups
num_return_sequences diversity_penalty early_stopping exponential_decay_length_penalty
no_repeat_ngram_size encoder_no_repeat_ngram_size remove_invalid_values return_dict_in_generate
finetuning_task id2label label2id num_labels problem_type task_specific_params tokenizer_class
summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
summary_last_dropout transformers.js_config _attn_implementation attn_implementation _commit_hash
_attn_implementation_autoset is_llama_config unsloth_version unsloth_fixed gpt_onnx n_ctx
predict_special_tokens max_window_layers
"""

PASSIVE = frozenset(_NAMES.split())
"""Keys that change no logit."""
