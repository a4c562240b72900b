"""A byte-level BPE in the form that every client reads alike: GPT-2's pre-tokenizer, no normalizer.

Any text, whatever its bytes, encodes and decodes back to itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors


def byte_level_bpe(
    vocab: Mapping[str, int] | None = None, merges: Sequence[tuple[str, str]] = (), special: str | None = None
) -> Tokenizer:
    """Return a tokenizer with this vocabulary and these merges, or an empty one to train.

    Args:
        vocab: Token, in the alphabet of byte-level BPE, to id.
        merges: Pairs of tokens, first merged first.
        special: A token of ``vocab`` to mark as special, which text never becomes; ignored where absent.
    """
    bpe = models.BPE(dict(vocab), list(merges)) if vocab else models.BPE()
    tokenizer = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    if vocab and special in vocab:
        tokenizer.add_special_tokens([AddedToken(special, special=True, normalized=False)])
    return tokenizer
