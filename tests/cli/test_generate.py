"""``gpt-onnx generate`` on a real bundle whose model knows one text by heart."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers import pre_tokenizers

TEXT = "abcdefgh 😀日.\n"  # what the model of conftest.py repeats
LONG = 10**6
BundleMaker = Callable[..., Path]


def ids_of(text: str) -> list[int]:
    """Each byte is a token; ids follow the order of GPT-2's characters for bytes, after end-of-text."""
    order = sorted(pre_tokenizers.ByteLevel.alphabet())
    split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    [(written, _)] = split.pre_tokenize_str(text)
    return [1 + order.index(character) for character in written]


@pytest.fixture(scope="module")
def bundle(bigram: Path) -> Path:
    return bigram


@pytest.fixture(scope="module")
def bundle_of_ids(make_bigram: BundleMaker) -> Path:
    return make_bigram(text=False)


@dataclass
class Result:
    code: int
    out: str
    err: str


class Runner:
    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self.capfd = capfd

    def __call__(self, bundle: Path, *args: str) -> Result:
        from gpt_onnx.cli import main

        with pytest.raises(SystemExit) as exit_info:
            main(["generate", str(bundle), *args])
        out, err = self.capfd.readouterr()
        return Result(int(exit_info.value.code or 0), out, err)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Runner:
    return Runner(capfd)


def objects(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def test_a_prompt_is_continued_on_stdout_and_the_seed_is_told_on_stderr(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "abc", "-n", "10")
    assert (result.code, result.out) == (0, "defgh 😀\n")  # the last four tokens are one emoji's bytes
    assert result.err.startswith("seed ")


def test_the_seed_that_was_told_gives_the_same_text(run: Runner, bundle: Path) -> None:
    first = run(bundle, "-p", "x", "-n", "30", "--temp", "9")
    seed = first.err.split()[1]
    assert run(bundle, "-p", "x", "-n", "30", "--temp", "9", "-s", seed) == Result(0, first.out, "")


def test_greedy_tells_no_seed(run: Runner, bundle: Path) -> None:
    assert run(bundle, "-p", "a", "-n", "3", "--temperature", "0") == Result(0, "bcd\n", "")


@pytest.mark.parametrize("option", ["--stream", "--no-stream"])
def test_streaming_does_not_change_the_text(run: Runner, bundle: Path, option: str) -> None:
    assert run(bundle, "-p", "c", "-n", "40", "-s", "1", option).out == (TEXT * 4)[3:33] + "\n"


def test_ids_that_the_tokenizer_lacks_are_never_chosen(run: Runner, bundle: Path) -> None:
    [answer] = objects(
        run(bundle, "-p", "x", "-n", "200", "--temp", "50", "--top-k", "0", "--ignore-eos", "--json")
    )
    assert len(answer["ids"]) == 200
    assert max(answer["ids"]) < 257


def test_a_stop_string_over_several_tokens_is_not_shown(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "f", "-n", "50", "-s", "1", "--stop", "😀日", "--stop", "zzz")
    assert result.out == "gh \n"


def test_the_end_of_a_text_ends_the_answer_unless_it_is_ignored(run: Runner, bundle: Path) -> None:
    [ended] = objects(run(bundle, "-p", "~", "--json", "-n", "4", "--temp", "0"))
    assert (ended["text"], ended["ids"], ended["finish_reason"]) == ("", [], "eos")
    [ignored] = objects(run(bundle, "-p", "~", "--json", "-n", "4", "--temp", "0", "--ignore-eos"))
    assert (ignored["text"], ignored["finish_reason"]) == ("abc", "length")
    assert ignored["ids"][0] == 0


def test_json_has_text_ids_reason_seed_and_timings(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "ab", "-n", "3", "-s", "7", "--json", "--echo")
    [answer] = objects(result)
    assert list(answer) == ["text", "ids", "finish_reason", "seed", "timings"]
    assert answer["text"] == "abcde"
    assert answer["ids"] == ids_of("cde")
    assert (answer["finish_reason"], answer["seed"]) == ("length", 7)
    assert answer["timings"]["prompt_tokens"] == 2
    assert answer["timings"]["new_tokens"] == 3
    assert answer["timings"]["first_token_s"] <= answer["timings"]["total_s"]
    assert result.err == ""


def test_a_batch_has_a_header_for_each_text(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "a", "-p", "defg", "-n", "2", "-s", "1", "--echo")
    assert result.out == "=== 1 ===\nabc\n=== 2 ===\ndefgh \n"


def test_a_batch_in_json_is_one_object_a_line(run: Runner, bundle: Path) -> None:
    answers = objects(run(bundle, "-p", "a", "--prompt-ids", "69,70", "-n", "2", "-s", "1", "--json"))
    assert [answer["text"] for answer in answers] == ["bc", "gh"]


def test_each_object_of_a_batch_counts_its_own_tokens(run: Runner, bundle: Path) -> None:
    answers = objects(run(bundle, "-p", "abc", "-p", "~", "-n", "2", "--temp", "0", "--json"))
    counts = [(a["timings"]["prompt_tokens"], a["timings"]["new_tokens"]) for a in answers]
    assert counts == [(3, 2), (1, 0)]  # the second text ends at once
    assert answers[0]["timings"]["total_s"] == answers[1]["timings"]["total_s"]


def test_a_batch_stops_each_text_at_its_own_stop_string(run: Runner, bundle: Path) -> None:
    answers = objects(run(bundle, "-p", "a", "-p", "e", "-n", "9", "-s", "1", "--stop", "gh", "--json"))
    assert [answer["text"] for answer in answers] == ["bcdef", "f"]
    assert {answer["finish_reason"] for answer in answers} == {"stop"}


def test_a_file_is_a_prompt_without_its_last_newline(run: Runner, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes("fgh 😀\r\n".encode())
    assert run(bundle, "-f", str(path), "-n", "4", "-s", "1").out == "日.\n"


def test_an_empty_prompt_begins_a_new_text(run: Runner, bundle: Path) -> None:
    assert run(bundle, "-p", "", "-n", "3", "-s", "1").out == "abc\n"


def test_no_new_tokens_prints_nothing_new(run: Runner, bundle: Path) -> None:
    assert run(bundle, "-p", "ab", "-n", "0", "-s", "1") == Result(0, "", "")
    assert run(bundle, "-p", "ab", "-n", "0", "-s", "1", "--echo") == Result(0, "ab\n", "")


def test_statistics_are_on_stderr(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "ab", "-n", "3", "-s", "1", "--stats")
    assert result.out == "cde\n"
    pattern = (
        r"2 prompt tokens, 3 new in [\d.]+ s \(the first after \d+ ms, then [\d.]+ a second\); "
        r"loaded in [\d.]+ s; on cpu; ended by length\n"
    )
    assert re.fullmatch(pattern, result.err)


@pytest.mark.parametrize("how", ["auto", "off", "0"])
def test_a_graph_that_cannot_be_guessed_says_nothing(run: Runner, bundle: Path, how: str) -> None:
    assert run(bundle, "-p", "ab", "-n", "3", "--temp", "0", "--speculate", how) == Result(0, "cde\n", "")


def test_a_number_of_guessed_tokens_that_has_no_effect_is_one_plain_line(run: Runner, bundle: Path) -> None:
    result = run(bundle, "-p", "ab", "-n", "3", "--temp", "0", "--speculate", "4")
    assert (result.code, result.out) == (0, "cde\n")
    assert result.err.startswith("Warning: speculate is 4 and this graph computes one token at a time")
    assert result.err.count("\n") == 1


def test_what_became_of_guesses_is_told() -> None:
    from gpt_onnx.cli._answers import _guesses, _statistics
    from gpt_onnx.runtime._speculation import Speculation
    from gpt_onnx.runtime.text import Completion

    tried = [Speculation(runs=2, proposed=9, accepted=7), Speculation(runs=1, proposed=1, accepted=0), None]
    completions = [
        Completion(prompt_ids=(), ids=(), text="", finish_reason="length", speculation=each) for each in tried
    ]
    guesses = _guesses(completions)
    assert guesses == {"guessing_runs": 3, "guessed_tokens": 10, "accepted_tokens": 7}
    assert _guesses(completions[2:]) == {}
    assert set(
        _guesses([replace(completions[0], speculation=Speculation(runs=0, proposed=0, accepted=0))]).values()
    ) == {0}
    timings = {"prompt_tokens": 1, "new_tokens": 2, "total_s": 1.0, "load_s": 1.0}
    assert "7 of 10 guessed tokens accepted in 3 runs; loaded" in _statistics(timings | guesses)


def test_one_token_is_not_told_as_several(run: Runner, bundle: Path) -> None:
    assert run(bundle, "-p", "a", "-n", "1", "--temp", "0", "--stats").err.startswith(
        "1 prompt token, 1 new in"
    )


def test_control_tokens_in_a_prompt_are_letters(run: Runner, bundle: Path) -> None:
    [answer] = objects(run(bundle, "-p", "<|endoftext|>", "-n", "1", "--json"))
    assert answer["timings"]["prompt_tokens"] == len("<|endoftext|>")


def test_the_bundle_says_the_defaults_and_options_change_them(run: Runner, make_bigram: BundleMaker) -> None:
    bundle = make_bigram(do_sample=False)
    assert run(bundle, "-p", "a", "-n", "2").err == ""  # greedy: no seed
    assert run(bundle, "-p", "a", "-n", "2", "--temperature", "1").err.startswith("seed ")


def test_a_bundle_without_a_tokenizer_takes_and_gives_ids(run: Runner, bundle_of_ids: Path) -> None:
    ids = ids_of("abcd")
    for option in ("--stream", "--no-stream"):
        result = run(
            bundle_of_ids, "--prompt-ids", f"{ids[0]},{ids[1]}", "-n", "1", "--echo", "--temp", "0", option
        )
        assert result.out.startswith(f"{ids[0]},{ids[1]},")
        assert result.out.count(",") == 2


def test_learned_positions_end_at_the_context(run: Runner, make_bigram: BundleMaker) -> None:
    bundle = make_bigram(limit=6)
    [answer] = objects(run(bundle, "-p", "abc", "-s", "1", "--json"))
    assert answer["finish_reason"] == "context"
    assert answer["text"] == "defg"  # the last one needs no position
    told = "the context is full after 7 tokens; --on-context-end slide forgets the beginning and goes on\n"
    full = run(bundle, "-p", "abc", "-s", "1")
    assert (full.out, full.err) == ("defg\n", told)
    assert not run(bundle, "-p", "abc", "-n", "4", "-s", "1").err
    batch = run(bundle, "-p", "abc", "-p", "f", "-n", "4", "-s", "1", "--json")
    assert not batch.err
    assert "in 1 of 2 texts" in run(bundle, "-p", "abcdef", "-p", "a", "-n", "3", "-s", "1").err
    slid = run(bundle, "-p", "abc", "-s", "1", "-n", "10", "--on-context-end", "slide")
    assert slid.out == "defgh 😀\n"
    too_long = run(bundle, "-p", "abcdefgh")
    assert too_long.code == 1
    assert "8 tokens and the maximum context window is 6" in too_long.err


BAD: dict[str, tuple[Sequence[str], int, str]] = {
    "no prompt": ([], 2, "there is no prompt; give -p TEXT"),
    "negative length": (["-p", "a", "-n", "-1"], 2, "-1 is not in the range"),
    "top-p above 1": (["-p", "a", "--top-p", "2"], 2, "2.0 is not in the range"),
    "temperature that is no number": (["-p", "a", "--temp", "nan"], 2, "'nan' is not a finite number"),
    "unknown provider": (["-p", "a", "--provider", "tpu"], 2, "'tpu' is not a provider"),
    "thousands of threads": (["-p", "a", "-t", "5000"], 2, "5000 is more than the "),
    "threads beyond any machine": (
        ["-p", "a", "-t", "99999999999999"],
        2,
        "99999999999999 is more than the ",
    ),
    "digits of Python": (["-p", "a", "-n", "1_0"], 2, "'1_0' is not an integer"),
    "digits of another script": (["-p", "a", "--top-k", "\u0663"], 2, "'\u0663' is not an integer"),
    "endless digits": (["-p", "a", "-s", "9" * 5000], 2, "... is too large; give an integer from 0 to"),
    "k beyond any vocabulary": (
        ["-p", "a", "--top-k", "9" * 30],
        2,
        f"'{'9' * 30}' is too large; give an integer from 0 to 9223372036854775807.",
    ),
    "far below 0": (["-p", "a", "-n", "-" + "9" * 30], 2, "is too small; give an integer from 0 to"),
    "id of 5,000 digits": (["--prompt-ids", "1," + "9" * 5000], 2, "9... is not a list of token ids"),
    "id left out": (["--prompt-ids", "1,,2"], 2, "'1,,2' is not a list of token ids; give integers from 0"),
    "no ids": (["--prompt-ids", "1,b"], 2, "is not a list of token ids"),
    "id outside the vocabulary": (
        ["--prompt-ids", "3,262"],
        1,
        "the id 262 at index 1; ids must be from 0 to 261",
    ),
    "negative id": (["--prompt-ids", "-1"], 2, "is not a list of token ids"),
    "missing file": (["-f", "/nowhere/prompt"], 1, "/nowhere/prompt could not be read: No such file"),
    "unknown way of guessing": (
        ["-p", "a", "--speculate", "on"],
        2,
        "'on' is neither auto nor off, nor a number",
    ),
    "too long a guess": (["-p", "a", "--speculate", "32"], 2, "nor a number of tokens from 0 to 31"),
    "empty stop": (["-p", "a", "--stop", ""], 1, "a stop string is empty"),
    "not Unicode": (["-p", "a\udce9"], 1, "not valid Unicode at character 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_sentence(run: Runner, bundle: Path, name: str) -> None:
    args, code, message = BAD[name]
    result = run(bundle, *args)
    assert (result.code, result.out) == (code, "")
    assert message in result.err
    assert max(map(len, result.err.splitlines())) < 300
    assert "Traceback" not in result.err


def test_text_without_a_tokenizer_says_what_to_do(run: Runner, bundle_of_ids: Path) -> None:
    result = run(bundle_of_ids, "-p", "a")
    assert result.code == 1
    assert result.err == (
        "Error: this bundle has no tokenizer.json; give token ids, or export it again with --tokenizer.\n"
    )
    assert "cannot be found" in run(bundle_of_ids, "--prompt-ids", "1", "--stop", "x").err


def test_an_empty_prompt_without_an_end_of_text_token_is_refused(
    run: Runner, make_bigram: BundleMaker
) -> None:
    bundle = make_bigram(eos_token_id=None, edit=("<|endoftext|>", "<|other|>"))
    assert "the prompt is empty" in run(bundle, "-p", "").err


def test_a_refused_tokenizer_is_named(run: Runner, make_bigram: BundleMaker) -> None:
    bundle = make_bigram(edit=('"decoder":{"type":"ByteLevel"', '"decoder":{"type":"Evil"'))
    result = run(bundle, "-p", "a")
    assert result.code == 1
    assert "decoder is of the type 'Evil'" in result.err


def test_a_file_that_is_not_utf8_or_too_large_is_refused(run: Runner, bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompt"
    path.write_bytes(b"ab\xff")
    assert "is not UTF-8 at byte 2" in run(bundle, "-f", str(path)).err
    path.write_bytes(b"a" * 8_000_001)
    assert "is larger than 8000000 bytes" in run(bundle, "-f", str(path)).err


def test_going_past_the_trained_length_is_one_plain_line(run: Runner, make_bigram: BundleMaker) -> None:
    bundle = make_bigram(trained=4)
    result = run(bundle, "-p", "abc", "-n", "5", "-s", "1")
    assert result.out == "defgh\n"
    assert result.err.startswith("Warning: the sequence has 5 tokens and the model was trained on 4")
    assert result.err.count("\n") == 1


def start(bundle: Path, *args: str, **options: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gpt_onnx", "generate", str(bundle), "-n", str(LONG), "-s", "1", *args]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


def test_ctrl_c_keeps_the_text_so_far(bundle: Path) -> None:
    process = start(bundle, "-p", "a")
    assert process.stdout is not None
    head = process.stdout.read(20)
    process.send_signal(signal.SIGINT)
    rest, err = process.communicate(timeout=20)
    assert process.returncode == 130
    text = rest.decode()
    assert text.endswith("\n")
    shown = b"a" + head + text[:-1].rstrip("\ufffd").encode()  # perhaps cut within a character
    assert (TEXT * 1000).encode().startswith(shown)
    assert err == b""


@pytest.mark.parametrize("prompts", [["-p", "a"], ["-p", "a", "-p", "b"]])
def test_ctrl_c_in_json_says_cancelled(make_bigram: BundleMaker, prompts: list[str]) -> None:
    process = start(make_bigram(trained=4), "--json", *prompts)
    assert process.stderr is not None
    assert process.stderr.readline().startswith(b"Warning: the sequence has 5 tokens")  # it is on its way
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (130, b"")
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == len(prompts) // 2
    assert {answer["finish_reason"] for answer in answers} == {"cancelled"}
    assert answers[0]["text"].startswith("bcd")


WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(["torch", "onnx", "onnx_ir", "onnxscript", "safetensors"]))  # not to be had
from gpt_onnx import load
print(load(sys.argv[1]).complete("ab", max_new_tokens=4, seed=1))
from gpt_onnx.cli import main
main(["generate", sys.argv[1], "-p", "ab", "-n", "4", "-s", "1"])
"""


def test_neither_pytorch_nor_onnx_is_needed(bundle: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", WITHOUT, str(bundle)]
    done = subprocess.run(command, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"cdef\ncdef\n", b"")


def test_a_reader_that_goes_away_ends_the_command_quietly(bundle: Path) -> None:
    process = start(bundle, "-p", "a")
    assert process.stdout is not None
    assert process.stdout.read(3) == b"bcd"
    process.stdout.close()
    assert process.wait(timeout=20) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_an_output_that_cannot_write_a_character_replaces_it(bundle: Path) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    command = [sys.executable, "-m", "gpt_onnx", "generate", str(bundle), "-p", "h", "-n", "5", "-s", "1"]
    done = subprocess.run(command, capture_output=True, env=environment, timeout=60, check=True)
    assert done.stdout == b" ?\n"


def test_an_empty_name_is_not_this_folder(run: Runner) -> None:
    result = run(Path("bundle"), "-p", "a")
    assert result.code == 1
    from gpt_onnx.cli import main

    for name in ("", "a\0b"):
        with pytest.raises(SystemExit) as exit_info:
            main(["generate", name, "-p", "a"])
        assert exit_info.value.code == 2
        assert "names no folder; for this one, write a dot" in run.capfd.readouterr().err
