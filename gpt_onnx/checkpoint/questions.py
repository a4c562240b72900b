"""What tensors cannot say, asked by name, and never guessed.

    facts = facts_of(shapes)                      # sizes, biases, parts
    template(facts, source=path)                  # TOML of a --config file: the facts, and open questions
    complete(facts, Path("gpt.toml"), source=path)  # GPTConfig, or an error that lists what is open

An answer that contradicts a tensor is refused. Reading ReLU for GELU gives wrong numbers that no check
against our own reading can find, so every question has to be answered; only what is rare and visible in the
code (scaled rotary frequencies, scores divided by the number of the layer) is taken as absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpt_onnx._user_text import read_toml
from gpt_onnx.checkpoint.facts import Facts, head_sizes
from gpt_onnx.config import (
    ACTIVATIONS,
    ATTENTION_SCALES,
    NORM_ORDERS,
    NORMS,
    POSITIONS,
    ROPE_STYLES,
    SINUSOIDAL_STYLES,
    SYNONYMS,
    GPTConfig,
    read_json_object,
)
from gpt_onnx.errors import ConfigError, InputError

OPEN = "?"  # what a template has in place of an answer


def _always(values: Mapping[str, Any]) -> bool:
    return True


def _if_position(kind: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda values: values.get("position") == kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One field of GPTConfig that tensors may leave open."""

    key: str
    choices: tuple[str, ...] = ()
    """Words to choose from; none for a number alone."""
    number: str = ""
    """An example of a number, where one is an answer."""
    help: tuple[str, ...]
    """Where in the program the answer stands, line by line."""
    when: Callable[[Mapping[str, Any]], bool] = _always
    """Whether it matters, by what is known and answered so far."""

    def words(self, facts: Facts) -> str:
        """Return the possible answers, as messages and templates show them."""
        choices = [f'"{choice}"' for choice in facts.choices.get(self.key, self.choices)]
        numbers = [f"a number such as {self.number}"] if self.number else []
        *most, last = [*choices, *numbers]
        return f"{', '.join(most)} or {last}" if most else last


QUESTIONS = (
    Question(
        key="n_head",
        number="12",
        help=("How many attention heads does a block have? One matrix holds the queries of all of them.",),
    ),
    Question(
        key="position",
        choices=POSITIONS,
        help=(
            "How does the model know positions? No table of them is stored.",
            "sin() and cos() added to the embedding: sinusoidal; queries and keys turned by them: rotary;",
            "a bias on the scores that grows with the distance: alibi.",
        ),
    ),
    Question(
        key="sinusoidal_style",
        choices=SINUSOIDAL_STYLES,
        help=(
            "If position is sinusoidal: columns 0, 2, 4... sines and 1, 3, 5... cosines (slices of step 2):",
            "interleaved; first all sines, then all cosines (cat): concatenated.",
        ),
        when=_if_position("sinusoidal"),
    ),
    Question(
        key="rope_theta",
        number="10000.0",
        help=("If position is rotary: the base of the frequencies, theta^(-2i / size).",),
        when=_if_position("rotary"),
    ),
    Question(
        key="rope_style",
        choices=ROPE_STYLES,
        help=(
            "If position is rotary: element i of a head turns with i + size / 2 (rotate_half, Llama of",
            "Hugging Face): half; 2i turns with 2i + 1 (view_as_complex, RoFormer): interleaved.",
        ),
        when=_if_position("rotary"),
    ),
    Question(
        key="context_length",
        number="1024",
        help=("How many tokens did it see at once in training? Often called block_size or max_seq_len.",),
    ),
    Question(
        key="norm",
        choices=NORMS,
        help=("The norms have no bias: LayerNorm subtracts the mean, RMSNorm does not.",),
    ),
    Question(
        key="norm_order",
        choices=NORM_ORDERS,
        help=(
            "x = x + attention(ln1(x)): pre; x = ln1(x + attention(x)): post,",
            "as in torch::nn::TransformerEncoderLayer.",
        ),
    ),
    Question(
        key="norm_eps",
        number="1e-5",
        help=("The eps of the norms: LayerNorm's default is 1e-5 in C++ and in Python.",),
    ),
    Question(
        key="activation",
        choices=ACTIVATIONS,
        help=(
            "What stands between the layers of the feed-forward network? ReLU(), relu(x): relu;",
            'GELU(), gelu(x): gelu; GELU with approximate("tanh"): gelu_tanh; SiLU(): silu;',
            "with a gate: silu(gate) * up is swiglu, gelu(gate) * up is geglu, or geglu_tanh.",
        ),
    ),
    Question(
        key="attention_scale",
        choices=ATTENTION_SCALES,
        number="0.125",
        help=(
            "What are the scores of queries and keys multiplied by? 1 / sqrt(head_size), as in",
            "scaled_dot_product_attention and MultiheadAttention: head_size; 1 / sqrt(n_embd), as x.size(-1)",
            "before the heads are split gives it: n_embd; without any scale: 1.0.",
        ),
    ),
    Question(
        key="embedding_scale",
        choices=("sqrt",),
        number="1.0",
        help=(
            "The token embedding as it is: 1.0; multiplied by sqrt(n_embd) before positions are added: sqrt.",
        ),
    ),
)


def read_answers(path: Path) -> dict[str, Any]:
    """Read a --config file (TOML or JSON), its synonyms renamed to the fields of GPTConfig.

    Raises:
        ConfigError: if it cannot be read, or says one thing twice.
    """
    if path.suffix.lower() == ".json":
        values = read_json_object(path)
    else:
        try:
            values = read_toml(path)
        except (OSError, ValueError, RecursionError) as exc:
            raise ConfigError(f"{path} could not be read as TOML: {exc}.") from exc
    fields = {synonym: name for name, synonyms in SYNONYMS.items() for synonym in synonyms}
    answers: dict[str, Any] = {}
    for key, value in values.items():
        name = fields.get(key, key)
        if name in answers:
            raise ConfigError(f"{path} has {key} beside another word for {name}; remove one.")
        if value is not None and value != OPEN:
            answers[name] = value
    return answers


def _check_agreement(facts: Facts, answers: Mapping[str, Any], file: Path, source: Path) -> None:
    """Refuse an answer that a tensor contradicts.

    Raises:
        ConfigError: naming both.
    """
    for key, answer in answers.items():
        if key in facts.values and answer != facts.values[key]:
            raise ConfigError(
                f"{file} says {key} = {answer!r}; the tensors of {source} say {facts.values[key]!r}: "
                "correct it or leave it away."
            )
        choices = facts.choices.get(key)
        if choices is not None and isinstance(answer, str) and answer not in choices:
            raise ConfigError(
                f"{file} says {key} = {answer!r}; the tensors of {source} leave {', '.join(choices)}."
            )


def _settled(facts: Facts, answers: Mapping[str, Any]) -> dict[str, Any]:
    """Put facts, answers, and what follows from both together."""
    values = {**answers, **facts.values}
    for key, value in head_sizes(facts, values).items():
        if values.setdefault(key, value) != value:
            raise ConfigError(
                f"{key} is {values[key]!r}; with n_head = {values['n_head']} the tensors say {value}."
            )
    return values


def open_questions(values: Mapping[str, Any]) -> list[Question]:
    """Return the questions that nobody has answered yet; those that depend on an open one are not counted."""
    return [question for question in QUESTIONS if question.key not in values and question.when(values)]


def complete(facts: Facts, file: Path | None, *, source: Path) -> GPTConfig:
    """Return the configuration that tensors and the user's answers give together.

    Args:
        facts: What the tensors say.
        file: The --config file; None if there is none.
        source: What is being read, for messages.

    Raises:
        InputError: if a question is open, listing each with its answers.
        ConfigError: if an answer is not understood, or contradicts a tensor.
    """
    answers = {} if file is None else read_answers(file)
    if file is not None:
        _check_agreement(facts, answers, file, source)
    values = _settled(facts, answers)
    if missing := open_questions(values):
        asked = "; ".join(f"{question.key} ({question.words(facts)})" for question in missing)
        place = "in a file" if file is None else f"in {file}"
        raise InputError(
            f"{source} does not say {asked}: tensors cannot, and a guess would give wrong numbers, so say it "
            f"{place} and give that with --config; gpt-onnx export {source} --dry-run > gpt.toml writes a "
            "template."
        )
    return GPTConfig.from_dict(values, origin=str(file or source))


def _toml(value: object) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        parts = (f"{key} = {_toml(part)}" for key, part in value.items() if part is not None)
        return f"{{ {', '.join(parts)} }}"
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _asked(question: Question, facts: Facts, answers: Mapping[str, Any]) -> list[str]:
    """Return a question's lines of a template."""
    told = [f"# {line}" for line in question.help]
    if question.key in answers:
        return [*told, f"{question.key} = {_toml(answers[question.key])}", ""]
    return [*told, f'# {question.key} = "{OPEN}"    # {question.words(facts)}', ""]


def template(facts: Facts, *, source: Path, file: Path | None = None) -> str:
    """Return the text of a --config file (TOML): the facts, the answers so far, and the open questions.

    Raises:
        ConfigError: if an answer contradicts a tensor.
    """
    answers = {} if file is None else read_answers(file)
    if file is not None:
        _check_agreement(facts, answers, file, source)
    values = {**answers, **facts.values}
    lines = [
        f"# The configuration of {source.name}. Answer each question from the program that wrote it: take",
        "# the # before its line away and put the answer in. Then give this file with --config.",
        "",
    ]
    may_matter = [
        question
        for question in QUESTIONS
        if question.key not in facts.values and (question.when(values) or "position" not in values)
    ]
    for question in may_matter:
        lines += _asked(question, facts, answers)
    asked = {question.key for question in may_matter}
    lines += [f"{key} = {_toml(answers[key])}" for key in answers if key not in {*asked, *facts.values}]
    lines.append("# What the tensors say themselves; these lines can be left away.")
    lines += [f"{key} = {_toml(value)}" for key, value in facts.values.items()]
    return "\n".join(lines) + "\n"


def is_open(text: str) -> bool:
    """Whether a question stands in the text of a template without an answer."""
    return re.search(rf'^(# )?\w+ = "{re.escape(OPEN)}"', text, re.MULTILINE) is not None
