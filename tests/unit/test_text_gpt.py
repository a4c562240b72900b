"""TextGPT above an engine that says what it is told to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Tokenizer as RustTokenizer
from tokenizers import decoders, models, pre_tokenizers, trainers

from gpt_onnx.errors import InputError
from gpt_onnx.runtime.generation import Generation
from gpt_onnx.runtime.generation_config import GenerationDefaults
from gpt_onnx.runtime.sampling import Sampling
from gpt_onnx.runtime.text import Completion, TextGPT
from gpt_onnx.runtime.tokenizer import Tokenizer, load_tokenizer

EOT = "<|endoftext|>"
VOCAB = 260


class FakeTokens(Iterator[int]):
    """A token stream that says its ids; one of them may be an exception."""

    def __init__(
        self, script: Sequence[int | type[BaseException]], cancelled: Callable[[], bool] | None
    ) -> None:
        self._script = list(script)
        self._cancelled = cancelled
        self.said: list[int] = []
        self.finish_reason: str | None = None

    def __next__(self) -> int:
        if self._cancelled is not None and self._cancelled():
            self.close()
        if self.finish_reason is not None or not self._script:
            self.finish_reason = self.finish_reason or "length"
            raise StopIteration
        token = self._script.pop(0)
        if not isinstance(token, int):
            raise token
        self.said.append(token)
        return token

    @property
    def generation(self) -> Generation:
        return Generation(ids=tuple(self.said), finish_reason=self.finish_reason or "cancelled")

    def close(self) -> None:
        self.finish_reason = self.finish_reason or "cancelled"


class FakeEngine:
    """Says the same script after every prompt, and keeps what it was asked."""

    vocab_size = VOCAB

    def __init__(self, script: Sequence[int | type[BaseException]] = ()) -> None:
        self.script = script
        self.asked: list[dict[str, Any]] = []

    def stream(self, prompt_ids: Sequence[int], max_new_tokens: int, **options: Any) -> FakeTokens:
        self.asked.append({"prompt_ids": prompt_ids, **options})
        return FakeTokens(self.script[:max_new_tokens], options["cancelled"])

    def generate(
        self, prompts: Sequence[Sequence[int]], max_new_tokens: int, **options: Any
    ) -> list[Generation]:
        self.asked.append({"prompts": prompts, **options})
        ids = tuple(token for token in self.script[:max_new_tokens] if isinstance(token, int))
        return [Generation(ids=ids, finish_reason="length") for _ in prompts]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    rust = RustTokenizer(models.BPE())
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    rust.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=257, special_tokens=[EOT], initial_alphabet=alphabet, show_progress=False
    )
    rust.train_from_iterator([], trainer)
    path: Path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    path.write_text(rust.to_str(), encoding="utf-8")
    return load_tokenizer(path)


def gpt(
    engine: FakeEngine, tokenizer: Tokenizer | None, defaults: GenerationDefaults | None = None
) -> TextGPT:
    return TextGPT(cast(Any, engine), tokenizer, defaults or GenerationDefaults(eos_ids=(0,)))


def test_complete_returns_the_new_text_alone(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("the state 😀"))
    assert gpt(engine, tokenizer).complete("of ") == "the state 😀"
    assert engine.asked[0]["prompt_ids"] == tokenizer.encode("of ")


def test_stream_yields_whole_characters_and_no_empty_piece(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("a😀b"))
    assert list(gpt(engine, tokenizer).stream("x")) == ["a", "😀", "b"]


def test_a_stop_string_ends_the_engine_too(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("one. two. three."))
    stream = gpt(engine, tokenizer).stream("x", stop=[". t"])
    assert "".join(stream) == "one"
    assert stream.completion.ids == tuple(tokenizer.encode("one. t"))
    assert stream.completion.finish_reason == "stop"


def test_one_string_as_stop_is_one_stop_string(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("one. two"))
    assert gpt(engine, tokenizer).complete("x", stop=". t") == "one"


def test_an_interrupted_stream_keeps_what_was_generated(tokenizer: Tokenizer) -> None:
    engine = FakeEngine([*tokenizer.encode("one"), KeyboardInterrupt])
    stream = gpt(engine, tokenizer).stream("x", stop=["never"])
    pieces: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        pieces.extend(stream)
    assert stream.close() == "ne"  # kept back as it may have become "never"
    assert stream.completion.text == "one"
    assert stream.completion.finish_reason == "cancelled"


def test_a_batch_is_decoded_row_by_row(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("xyz"))
    answers = gpt(engine, tokenizer).generate(["a", [67]], 2)
    assert [answer.text for answer in answers] == ["xy", "xy"]
    assert [answer.prompt_ids for answer in answers] == [tuple(tokenizer.encode("a")), (67,)]
    assert len(engine.asked) == 1


def test_a_batch_with_stop_strings_is_what_each_row_alone_is(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("xyz"))
    answers = gpt(engine, tokenizer).generate(["a", "b"], 3, stop=["z"], seed=1)
    assert [(answer.text, answer.finish_reason) for answer in answers] == [("xy", "stop"), ("xy", "stop")]


def test_rows_draw_the_same_numbers_with_and_without_stop_strings(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("xyz"))
    text = gpt(engine, tokenizer)
    text.generate(["a", "b"], seed=5)
    text.generate(["a", "b"], seed=5, stop=["never"])
    together = [generator.random() for generator in engine.asked[0]["generator"]]
    alone = [asked["generator"][0].random() for asked in engine.asked[1:]]
    assert together == alone == [generator.random() for generator in np.random.default_rng(5).spawn(2)]


def test_the_bundle_says_how_to_sample_unless_told_otherwise(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("x"))
    defaults = GenerationDefaults(sampling=Sampling(temperature=0.3), eos_ids=(0,))
    gpt(engine, tokenizer, defaults).complete("a")
    gpt(engine, tokenizer, defaults).complete("a", sampling=Sampling(top_k=1), ignore_eos=True)
    assert [asked["sampling"] for asked in engine.asked] == [Sampling(temperature=0.3), Sampling(top_k=1)]
    assert [asked["ignore_eos"] for asked in engine.asked] == [False, True]


def test_ids_that_the_tokenizer_lacks_are_forbidden(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("x"))
    gpt(engine, tokenizer).complete("a")
    assert np.flatnonzero(~engine.asked[0]["allowed_vocab"]).tolist() == [257, 258, 259]


def test_cancelling_ends_a_completion(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("xyz"))
    stream = gpt(engine, tokenizer).stream("a", cancelled=lambda: True)
    assert list(stream) == []
    assert stream.completion.finish_reason == "cancelled"


def test_an_empty_text_begins_with_the_token_that_begins_or_ends_a_text(tokenizer: Tokenizer) -> None:
    engine = FakeEngine()
    assert gpt(engine, tokenizer, GenerationDefaults(eos_ids=(5,))).encode("") == [5]
    assert gpt(engine, tokenizer, GenerationDefaults(bos_id=6)).encode("") == [6]
    assert gpt(engine, tokenizer, GenerationDefaults(bos_id=6, eos_ids=(5, 7))).encode("") == [6]
    assert gpt(engine, tokenizer, GenerationDefaults()).encode("") == [0]  # the tokenizer's <|endoftext|>


def test_without_a_tokenizer_there_are_ids_only() -> None:
    engine = FakeEngine([7, 8])
    text = gpt(engine, None)
    stream = text.stream([1, 2])
    assert list(stream) == []
    assert stream.completion == Completion(prompt_ids=(1, 2), ids=(7, 8), text="", finish_reason="length")
    for call in (lambda: text.complete("a"), lambda: text.stream("a"), lambda: text.complete([1])):
        with pytest.raises(InputError, match=r"no tokenizer\.json; give token ids, or export it again"):
            call()
    with pytest.raises(InputError, match="the stop string 'x' cannot be found"):
        text.stream([1], stop=["x"])


@pytest.mark.parametrize("seed", [-1, 1.5, True, "3", np.True_])
def test_a_seed_that_is_none_is_refused(tokenizer: Tokenizer, seed: Any) -> None:
    with pytest.raises(InputError, match="seed is"):
        gpt(FakeEngine(), tokenizer).complete("a", seed=seed)


def test_a_seed_may_come_from_numpy(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("x"))
    gpt(engine, tokenizer).complete("a", seed=np.int64(5))  # type: ignore[arg-type]
    gpt(engine, tokenizer).complete("a", seed=5)
    first, second = (asked["generator"][0].random() for asked in engine.asked)
    assert first == second


def test_fields_of_sampling_change_what_the_bundle_says(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("x"))
    text = gpt(engine, tokenizer, GenerationDefaults(sampling=Sampling(temperature=0.3, top_k=7)))
    text.complete("a", temperature=0)
    list(text.stream("a", top_p=0.5, min_p=None))
    text.generate(["a", "b"], top_k=0, min_p=0.1, repetition_penalty=1.5)
    assert [asked["sampling"] for asked in engine.asked] == [
        Sampling(temperature=0, top_k=7),
        Sampling(temperature=0.3, top_k=7, top_p=0.5),
        Sampling(temperature=0.3, top_k=0, min_p=0.1, repetition_penalty=1.5),
    ]


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    (
        {"temprature": 0},
        "there is no option 'temprature'; the options are temperature, top_k, top_p, ",
    ),
    ({"generator": None}, "there is no option 'generator'"),
    ({"sampling": Sampling(), "top_k": 3}, "sampling and top_k are both given; put top_k into it"),
    ({"sampling": 3}, "sampling is 3; it must be a Sampling"),
    ({"temperature": -1}, "temperature is -1"),
    ({"temperature": 10**400}, "temperature is 1000"),
    ({"top_k": 1.5}, "top_k is 1.5"),
    ({"stop": [1]}, r"stop is \[1\]; it must be a list of texts"),
    ({"stop": 3}, "stop is 3"),
    ({"stop": b"x"}, "stop is b'x'"),
    ({"stop": [""]}, "a stop string is empty"),
    ({"ignore_eos": "no"}, "ignore_eos is 'no'; it must be True or False"),
]


@pytest.mark.parametrize(("options", "message"), BAD_OPTIONS)
def test_an_option_that_cannot_be_used_is_named_in_every_form(
    tokenizer: Tokenizer, options: Any, message: str
) -> None:
    text = gpt(FakeEngine(), tokenizer)
    calls: list[Callable[[], Any]] = [
        lambda: text.complete("a", **options),
        lambda: text.stream("a", **options),
        lambda: text.generate(["a"], **options),
    ]
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()


def test_no_stop_strings_may_be_said_as_none(tokenizer: Tokenizer) -> None:
    assert gpt(FakeEngine(tokenizer.encode("xy")), tokenizer).complete("a", stop=None) == "xy"


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (None, "the prompt is None; it must be a text, or a list of token ids"),
        (3, "the prompt is 3"),
        (b"x", "the prompt is b'x'"),
        (np.array(3), r"the prompt is array\(3\)"),
        (["a", "b"], "the prompt holds <U1 values such as .*; token ids are integers"),
        ([1.5], "token ids are integers"),
        ([VOCAB], "the prompt has the id 260 at index 0"),
        ([[1]], "the prompt has 2 dims"),
    ],
)
def test_a_prompt_that_is_neither_text_nor_ids_is_refused(
    tokenizer: Tokenizer, prompt: Any, message: str
) -> None:
    text = gpt(FakeEngine(), tokenizer)
    for call in (lambda: text.complete(prompt), lambda: text.generate([prompt]), lambda: text.encode(prompt)):
        with pytest.raises(InputError, match=message):
            call()


@pytest.mark.parametrize("prompts", ["a text", b"x", None, 3, [], np.array(3)])
def test_prompts_that_are_no_list_are_refused(tokenizer: Tokenizer, prompts: Any) -> None:
    with pytest.raises(InputError, match="it must be a list of at least one prompt"):
        gpt(FakeEngine(), tokenizer).generate(prompts)


def test_ids_may_be_an_array(tokenizer: Tokenizer) -> None:
    engine = FakeEngine(tokenizer.encode("x"))
    gpt(engine, tokenizer).complete(np.array([1, 2], np.int32))  # type: ignore[arg-type]
    assert engine.asked[0]["prompt_ids"] == [1, 2]
