"""The command line names options as they are typed."""

from __future__ import annotations

import click
import pytest

from gpt_onnx.cli._misuse import as_typed, misuse
from gpt_onnx.export.options import ExportOptions

NAMES = ("block_size", "max_kl", "seq_len", "check", "calibration", "target")


@pytest.mark.parametrize(
    ("message", "typed"),
    [
        ("block_size is 7; it must be one of 16.", "--block-size is 7; it must be one of 16."),
        ("check is 'none'; choose a check that looks.", "--check is 'none'; choose a check that looks."),
        ("seq_len is 1; raise max_kl.", "--seq-len is 1; raise --max-kl."),
        (
            "the precision is 'int4' and target web has fp32.",
            "the precision is 'int4' and target web has fp32.",
        ),
        ("--block-size 16 and my_block_size stay", "--block-size 16 and my_block_size stay"),
    ],
)
def test_names_are_as_they_are_typed(message: str, typed: str) -> None:
    assert as_typed(message, NAMES) == typed


def test_a_contradiction_is_a_usage_error() -> None:
    with misuse(NAMES):
        ExportOptions(precision="int4", block_size=64)
    with (
        pytest.raises(click.UsageError, match="--block-size is 64 and the weights stay fp32"),
        misuse(NAMES),
    ):
        ExportOptions(precision="fp32", block_size=64)
