"""Names that nobody knows: the refusal, the table that --dry-run prints, and what follows it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gpt_onnx.checkpoint import read_checkpoint
from gpt_onnx.cli._group import cli
from tests.originals.own_names import LINES, SEEN, filled, own_state, write_archive, write_state_dict

ANSWERS = """
position = "alibi"
context_length = 40
norm_order = "pre"
norm_eps = 1e-5
activation = "gelu"
attention_scale = "head_size"
embedding_scale = 1.0
"""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["export", *arguments])


@pytest.fixture(params=[write_archive, write_state_dict], ids=["LibTorch", "state dict"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    write: Callable[[Path], Path] = request.param
    return str(write(tmp_path / "gpt.pt"))


def test_a_table_is_printed_filled_in_and_read(source: str, tmp_path: Path) -> None:
    asked = run(source, "--dry-run")
    assert asked.exit_code == 0
    assert "give it with --names FILE" in asked.stderr
    table = tomllib.loads(asked.stdout)
    assert table == {"ignore": [], "names": dict.fromkeys([*LINES, SEEN], "?")}
    assert json.loads(run(source, "--dry-run", "--json").stdout) == {"names_template": asked.stdout}
    names = tmp_path / "names.toml"
    names.write_text(filled(asked.stdout))
    questions = run(source, "--dry-run", "--names", str(names))
    assert questions.exit_code == 0
    assert '# activation = "?"' in questions.stdout
    assert "give it with --config FILE" in questions.stderr
    (tmp_path / "gpt.toml").write_text(ANSWERS)
    read = read_checkpoint(source, names=names, config=tmp_path / "gpt.toml")
    state = own_state()
    assert (read.numpy("h.1.mlp.c_fc.bias") == state["stage1.grow.bias"].numpy()).all()
    rows = read.numpy("h.0.attn.c_attn.weight")[2 * 16 : 3 * 16]
    assert (rows == state["stage0.unit2.to_q.weight"].numpy()).all()


def test_the_refusal_lists_every_pattern_and_the_command(source: str) -> None:
    told = str(run(source).exception)
    assert f"gpt-onnx export {source} --dry-run > names.toml" in told
    for line in (
        "stage{layer}.unit{head}.to_k.weight [16, 64] (8 times) like h.{layer}.attn.k.{head}.weight, ",
        "stage{layer}.mix.weight [64, 64] (2 times) like h.{layer}.attn.c_proj.weight, ",
        "stage{layer}.shrink.weight [64, 256] (2 times) like h.{layer}.mlp.c_proj.weight;",
        "answer.weight [100, 64] like lm_head.weight, wte.weight;",
        "h.{layer}.mlp.c_fc.weight like stage{layer}.grow.weight;",
    ):
        assert f"\n  {line}" in told
    assert all(pattern in told for pattern in LINES)
    assert "more" not in told


def test_a_table_of_one_line_is_told_what_is_left_on_both_sides(source: str, tmp_path: Path) -> None:
    names = tmp_path / "one.toml"
    names.write_text('[names]\n"words.table" = "wte.weight"\n')
    told = str(run(source, "--names", str(names)).exception)
    assert "\n  stage{layer}.grow.weight [256, 64] (2 times) like h.{layer}.mlp.c_fc.weight;" in told
    assert "\n  h.{layer}.attn.c_proj.weight like stage{layer}.mix.weight;" in told
    assert "words.table" not in told
    assert f"--names {names} --dry-run" in told
    table = tomllib.loads(run(source, "--names", str(names), "--dry-run").stdout)
    others = {name: "?" for name in [*LINES, SEEN] if name != "words.table"}
    assert table["names"] == {**others, "words.table": "wte.weight"}


def test_a_table_that_is_not_filled_in_is_refused_with_its_open_lines(source: str, tmp_path: Path) -> None:
    names = tmp_path / "names.toml"
    names.write_text(run(source, "--dry-run").stdout)
    told = str(run(source, "--names", str(names)).exception)
    assert 'the table still holds "?" for words.table, stage{layer}.pre.scale, ' in told
    assert told.endswith(" and 10 more; put in our name of each, or move it into ignore.")
