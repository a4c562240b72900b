"""Text in, text out: an engine of token ids and a tokenizer.

    gpt = load("bundle")
    print(gpt.complete("My fellow citizens,", max_new_tokens=50, temperature=0.7, seed=1))
    for piece in gpt.stream("My fellow citizens,", stop=["."]):
        print(piece, end="", flush=True)
    gpt.engine.logits(ids)                       # below text: OnnxGPT

A prompt is text or a sequence of token ids; a bundle without a tokenizer takes and gives ids only. An empty
text begins with the token that begins texts or, where none is named, with the one that ends them: a new
document begins with either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, TypedDict, Unpack

import numpy as np

from gpt_onnx.errors import InputError

from ._arguments import as_path, shown
from ._checks import as_ids, is_row
from ._completion import Completion, CompletionStream
from ._text import TextStream
from ._text_options import Choices, TextOptions, choose
from ._threads import thread_count
from .generation_config import GenerationDefaults, read_generation_defaults
from .sampling import Mask, Sampling

if TYPE_CHECKING:
    from gpt_onnx.bundle import Bundle

    from .engine import OnnxGPT
    from .tokenizer import Tokenizer

__all__ = ["Completion", "CompletionStream", "TextGPT", "TextOptions", "load"]

END_OF_TEXT = "<|endoftext|>"
NO_TOKENIZER = "this bundle has no tokenizer.json; give token ids, or export it again with --tokenizer"

Prompt: TypeAlias = str | Sequence[int]


class EngineOptions(TypedDict):
    """What the engine is told in either form of generation."""

    sampling: Sampling
    allowed_vocab: Mask | None
    ignore_eos: bool
    on_context_end: str
    cancelled: Callable[[], bool] | None
    speculate: int | str | None


def _finished(stream: CompletionStream) -> Completion:
    for _ in stream:
        pass
    return stream.completion


def _defaults(bundle: Bundle) -> GenerationDefaults:
    if "generation_config.json" not in bundle.manifest.files:
        return GenerationDefaults()
    path, vocab_size = bundle.file("generation_config.json"), bundle.manifest.model.vocab_size
    return read_generation_defaults(path, vocab_size=vocab_size)


def _tokenizer(bundle: Bundle, defaults: GenerationDefaults) -> Tokenizer | None:
    if "tokenizer.json" not in bundle.manifest.files:
        return None
    from .tokenizer import load_tokenizer  # here, as a bundle may have none

    control_ids = [*defaults.eos_ids, *([] if defaults.bos_id is None else [defaults.bos_id])]
    return load_tokenizer(bundle.file("tokenizer.json"), control_ids)


class TextGPT:
    """An engine with its tokenizer and its defaults; ``load`` makes one.

    Args:
        engine: computes ids from ids.
        tokenizer: None: prompts are ids, and so are completions.
        defaults: end-of-text ids and sampling.
    """

    def __init__(self, engine: OnnxGPT, tokenizer: Tokenizer | None, defaults: GenerationDefaults) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        self.defaults = defaults
        self._allowed: Mask | None = tokenizer.allowed(engine.vocab_size) if tokenizer is not None else None

    def encode(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt; ids stay as they are.

        Raises:
            InputError: if the text cannot be encoded, or is empty and there is no end-of-text token.
        """
        if not isinstance(prompt, str):
            return self._ids(prompt)
        if self.tokenizer is None:
            raise InputError(f"{NO_TOKENIZER}.")
        ids = self.tokenizer.encode(prompt) or self._beginning()
        if not ids:
            raise InputError(
                "the prompt is empty and this bundle names no end-of-text token; give some text."
            )
        return ids

    def _ids(self, prompt: Sequence[int]) -> list[int]:
        if not is_row(prompt):
            raise InputError(f"the prompt is {shown(prompt)}; it must be a text, or a list of token ids.")
        return [int(token_id) for token_id in as_ids(prompt, self.engine.vocab_size, "the prompt")]

    def _beginning(self) -> list[int]:
        """Return the token that an empty text begins with, or nothing."""
        named = [self.defaults.bos_id, *self.defaults.eos_ids]
        if self.tokenizer is not None:
            named.append(self.tokenizer.id_of(END_OF_TEXT))
        return [token_id for token_id in named if token_id is not None][:1]

    def complete(self, prompt: Prompt, max_new_tokens: int = 128, **options: Unpack[TextOptions]) -> str:
        """Return the text that continues a prompt, without the prompt.

        Raises:
            InputError: if there is no tokenizer, or the prompt or an option cannot be used.
        """
        if self.tokenizer is None:
            raise InputError(f"{NO_TOKENIZER}, and call engine.generate.")
        return "".join(self.stream(prompt, max_new_tokens, **options))

    def stream(
        self, prompt: Prompt, max_new_tokens: int = 128, **options: Unpack[TextOptions]
    ) -> CompletionStream:
        """Return the pieces of text that continue a prompt, as they come.

        Raises:
            InputError: at once, if the prompt or an option cannot be used.
        """
        choices = choose(options, self.defaults.sampling)
        [random] = choices.random.spawn(1)
        return self._start(prompt, max_new_tokens, random, choices)

    def generate(
        self, prompts: Sequence[Prompt], max_new_tokens: int = 128, **options: Unpack[TextOptions]
    ) -> list[Completion]:
        """Return a completion for each prompt.

        Rows are computed together, and each draws random numbers of its own. With stop strings they are
        computed one after another, as a text may end at any token; the result is the same.

        Raises:
            InputError: if a prompt or an option cannot be used.
        """
        if not is_row(prompts) or len(prompts) == 0:
            raise InputError(f"prompts is {shown(prompts)}; it must be a list of at least one prompt.")
        choices = choose(options, self.defaults.sampling)
        randoms = choices.random.spawn(len(prompts))
        if choices.stop:
            pairs = zip(prompts, randoms, strict=True)
            streams = [self._start(prompt, max_new_tokens, random, choices) for prompt, random in pairs]
            return [_finished(stream) for stream in streams]
        rows = [self.encode(prompt) for prompt in prompts]
        arguments = self._arguments(choices)
        generations = self.engine.generate(rows, max_new_tokens, generator=randoms, **arguments)
        return [
            Completion(
                prompt_ids=tuple(row),
                ids=generation.ids,
                text=self.continuation(row, generation.ids),
                finish_reason=generation.finish_reason,
                speculation=generation.speculation,
            )
            for row, generation in zip(rows, generations, strict=True)
        ]

    def continuation(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
        """Return the text that ids add to that of a prompt; empty for a bundle without a tokenizer."""
        if self.tokenizer is None:
            return ""
        text = TextStream(self.tokenizer, context=prompt_ids)
        return "".join(map(text.push, ids)) + text.flush()

    def _arguments(self, choices: Choices) -> EngineOptions:
        return {
            "sampling": choices.sampling,
            "allowed_vocab": self._allowed,
            "ignore_eos": choices.ignore_eos,
            "on_context_end": choices.on_context_end,
            "cancelled": choices.cancelled,
            "speculate": choices.speculate,
        }

    def _start(
        self, prompt: Prompt, max_new_tokens: int, random: np.random.Generator, choices: Choices
    ) -> CompletionStream:
        ids, text = self.encode(prompt), None
        if self.tokenizer is not None:
            text = TextStream(self.tokenizer, context=ids, stop=choices.stop)
        elif choices.stop:
            raise InputError(f"the stop string {choices.stop[0]!r} cannot be found: {NO_TOKENIZER}.")
        tokens = self.engine.stream(ids, max_new_tokens, generator=[random], **self._arguments(choices))
        return CompletionStream(tokens, ids, text)


def load(
    path: str | Path, provider: str = "auto", threads: int | None = None, *, check_hashes: bool = True
) -> TextGPT:
    """Load a bundle: its engine, its tokenizer if it has one, and its defaults.

    Args:
        path: the bundle's folder.
        provider: "auto", "cpu", "cuda" or "cuda:N"; never a silent fallback.
        threads: threads within an operator, at most 64 or four a core; None: the cores that this process may
            use.
        check_hashes: whether to verify the SHA-256 of every file first.

    Raises:
        InputError: if an argument is none of these.
        BundleError: if the bundle is damaged, or its tokenizer has a part that is not accepted.
        ProviderError: if the provider is not to be had.
    """
    from ._loading import loading  # here, so that sampler and text work without onnxruntime

    folder, count = as_path("path", path), thread_count(threads)
    with loading(folder, provider, count, check_hashes=check_hashes) as loaded:
        from .engine import OnnxGPT  # here, while the sessions are made, as what follows

        defaults = _defaults(loaded.bundle)
        tokenizer = _tokenizer(loaded.bundle, defaults)
        graphs = loaded.graphs()
    engine = OnnxGPT(loaded.bundle, graphs, count, check_hashes=check_hashes)
    return TextGPT(engine, tokenizer, defaults)
