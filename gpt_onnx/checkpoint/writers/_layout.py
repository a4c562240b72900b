"""What a layout of checkpoints is: which models fit it, and its words for configuration and tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpt_onnx.checkpoint.names import Naming
from gpt_onnx.config import GPTConfig


@dataclass(frozen=True, slots=True)
class Rule:
    """One field that a layout has no choice in, or not every choice."""

    field: str
    takes: Callable[[GPTConfig], tuple[Any, ...]]
    """The values that the layout has, which may depend on other fields."""
    value: Callable[[GPTConfig], Any] | None = None
    """What to compare where it is not the field itself."""

    def misfit(self, config: GPTConfig) -> str | None:
        """Return what does not fit, e.g. "position is 'sinusoidal' and must be 'learned'"."""
        value = self.value(config) if self.value else getattr(config, self.field)
        known = self.takes(config)
        if value in known:
            return None
        return f"{self.field} is {_shown(getattr(config, self.field))} and must be {_choices(known)}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _choices(values: tuple[Any, ...]) -> str:
    *others, last = map(_shown, values)
    return f"{', '.join(others)} or {last}" if others else last


def one_of(field: str, *values: Any) -> Rule:
    """Return the rule that a field has one of some values."""
    return Rule(field, lambda config: values)


def same_as(field: str, other: Callable[[GPTConfig], Any]) -> Rule:
    """Return the rule that a field has the value that others give it."""
    return Rule(field, lambda config: (other(config),))


def misfits(rules: tuple[Rule, ...], config: GPTConfig) -> str | None:
    """Return everything that does not fit, in one clause; None where all does."""
    found = [told for rule in rules if (told := rule.misfit(config))]
    return ", ".join(found) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout that can be written."""

    name: str
    """What it is called, e.g. "Hugging Face gpt2"."""
    family: str
    """What a user asks for: "gpt-onnx" or "huggingface"."""
    fits: Callable[[GPTConfig], str | None]
    """Why a model of a configuration cannot be written so; None where it can."""
    widened: Callable[[GPTConfig], GPTConfig]
    """The same model with all the weights that the layout has: biases that it lacks are zeros there."""
    describe: Callable[[GPTConfig, Mapping[str, int]], dict[str, Any]]
    """config.json, of the widened configuration and the special ids (bos_token_id, eos_token_id)."""
    naming: Naming | None = None
    """Its names of tensors; None where they are ours."""
