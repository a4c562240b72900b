"""Training: the loss falls, equal seeds give equal weights, and a stopped run goes on bit for bit."""

import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from gpt_onnx.checkpoint import load_model, read_checkpoint, write_checkpoint
from gpt_onnx.config import GPTConfig
from gpt_onnx.errors import CheckpointError, ConfigError, GptOnnxError, InputError
from gpt_onnx.model import GPT
from gpt_onnx.train import TrainOptions, TrainProgress, TrainReport, stopped_seed, train
from gpt_onnx.train.loop import STATE_FILE, WORK_FOLDER

WORDS = ("liberty", "union", "congress", "the", "of", "people", "peace", "war", "treasury", "law")
TOML = "vocab_size = 300\ncontext_length = 16\nn_embd = 16\nn_layer = 1\nn_head = 2\ndropout = 0.1\n"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A folder of eight documents of words in a fixed order, and a small configuration."""
    folder = tmp_path / "texts"
    folder.mkdir()
    words = itertools.cycle(WORDS)
    for number in range(8):
        (folder / f"{number}.txt").write_text(" ".join(itertools.islice(words, 120)))
    (tmp_path / "tiny.toml").write_text(TOML)
    return folder


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def options(texts: Path, output: str = "gpt", **changes: Any) -> TrainOptions:
    values: dict[str, Any] = {
        "corpus": (texts,),
        "output": texts.parent / output,
        "config": str(texts.parent / "tiny.toml"),
        "steps": 12,
        "batch_size": 4,
        "validate_every": 4,
        "learning_rate": 1e-2,
    }
    return TrainOptions(**(values | changes))


def completed(run: TrainOptions, **more: Any) -> TrainReport:
    report = train(run, **more)
    assert report is not None
    return report


def weights(output: Path) -> dict[str, torch.Tensor]:
    return load_model(read_checkpoint(output)).state_dict()


def assert_equal_weights(one: Path, other: Path) -> None:
    first, second = weights(one), weights(other)
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


def after(step: int) -> tuple[Callable[[TrainProgress], None], Callable[[], bool]]:
    """Return the two callbacks that stop a run after a step."""
    done: list[int] = []
    return lambda progress: done.append(progress.step), lambda: done[-1] >= step


def test_the_loss_falls_and_the_model_learns_the_text(texts: Path) -> None:
    losses: list[float] = []
    report = completed(
        options(texts, steps=150, validate_every=50), on_progress=lambda p: losses.append(p.loss)
    )
    assert losses[0] > 5.0
    assert losses[-1] < 0.5 * losses[0]
    assert report.bits_per_byte < 1.5


def test_the_report_counts_what_was_done(texts: Path) -> None:
    report = completed(options(texts))
    assert report.steps == 12
    assert report.tokens_seen == 12 * 4 * 16
    assert report.best_step in {4, 8, 12}
    assert report.parameters == sum(t.numel() for t in weights(texts.parent / "gpt").values())


def test_a_finished_run_leaves_a_checkpoint_and_a_record_without_paths(texts: Path) -> None:
    report = completed(options(texts))
    output = texts.parent / "gpt"
    expected = {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    }
    assert {entry.name for entry in output.iterdir()} == expected
    record = json.loads((output / "training.json").read_text())
    assert record["bits_per_byte"] == report.bits_per_byte
    assert str(texts.parent) not in (output / "training.json").read_text()


def test_equal_seeds_give_equal_weights(texts: Path) -> None:
    completed(options(texts, "one"))
    completed(options(texts, "two"))
    assert_equal_weights(texts.parent / "one", texts.parent / "two")


def test_another_seed_gives_other_weights(texts: Path) -> None:
    validation = (texts / "7.txt",)
    completed(options(texts, "one", validation=validation))
    completed(options(texts, "two", validation=validation, seed=1))
    assert not torch.equal(
        weights(texts.parent / "one")["wte.weight"], weights(texts.parent / "two")["wte.weight"]
    )


def test_the_callers_random_numbers_are_left_alone(texts: Path) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    completed(options(texts))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stopped_after", [1, 4, 7])
def test_a_stopped_run_goes_on_bit_for_bit(texts: Path, stopped_after: int) -> None:
    whole = completed(options(texts, "whole"))
    on_progress, stop = after(stopped_after)
    assert train(options(texts, "parts"), on_progress=on_progress, stop=stop) is None
    parts = completed(options(texts, "parts"), resume=True)
    assert_equal_weights(texts.parent / "whole", texts.parent / "parts")
    assert dataclasses.replace(parts, seconds=0.0) == dataclasses.replace(whole, seconds=0.0)


def test_a_run_killed_between_two_savings_goes_on_from_the_last_bit_for_bit(texts: Path) -> None:
    class KilledError(Exception):
        pass

    def kill(progress: TrainProgress) -> None:
        if progress.step == 6:
            raise KilledError

    completed(options(texts, "whole"))
    with pytest.raises(KilledError):
        train(options(texts, "parts"), on_progress=kill)
    steps: list[int] = []
    completed(options(texts, "parts"), resume=True, on_progress=lambda progress: steps.append(progress.step))
    assert steps[0] == 5
    assert_equal_weights(texts.parent / "whole", texts.parent / "parts")


def test_a_run_killed_before_its_first_saving_starts_again(texts: Path) -> None:
    def kill(_: TrainProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(options(texts), on_progress=kill)
    assert completed(options(texts)).steps == 12


def test_the_best_checkpoint_is_kept_where_the_model_gets_worse(texts: Path) -> None:
    """At an absurd learning rate after a good start the last weights are not the best."""
    losses: dict[int, float] = {}

    def note(progress: TrainProgress) -> None:
        if progress.validation_loss is not None:
            losses[progress.step] = progress.validation_loss

    (texts.parent / "other.txt").write_text("entirely different words about other things " * 20)
    validation = (texts.parent / "other.txt",)
    report = completed(options(texts, steps=60, validate_every=10, validation=validation), on_progress=note)
    best = min(losses, key=lambda step: losses[step])
    assert best < 60
    assert report.best_step == best
    assert report.validation_loss == pytest.approx(losses[best], rel=1e-5)


def test_the_state_on_the_disk_is_not_a_pickle(texts: Path) -> None:
    on_progress, stop = after(2)
    train(options(texts), on_progress=on_progress, stop=stop)
    names = {entry.name for entry in (texts.parent / "gpt" / WORK_FOLDER).iterdir()}
    assert names == {"tokenizer.json", "training.ids", "validation.ids", STATE_FILE}
    from safetensors import safe_open

    with safe_open(texts.parent / "gpt" / WORK_FOLDER / STATE_FILE, "pt") as file:
        assert set(file.keys()) >= {"weight.wte.weight", "exp_avg.wte.weight", "exp_avg_sq.wte.weight"}


def test_a_damaged_state_is_refused(texts: Path) -> None:
    on_progress, stop = after(2)
    train(options(texts), on_progress=on_progress, stop=stop)
    state = texts.parent / "gpt" / WORK_FOLDER / STATE_FILE
    state.write_bytes(state.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="truncated"):
        train(options(texts), resume=True)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"learning_rate": 1e-3}, "learning_rate = 0.01 and this one 0.001"),
        ({"steps": 13}, "steps = 12 and this one 13"),
        ({"steps": 13, "warmup": 0.5}, "warmup = 0.02 and this one 0.5, steps = 12 and this one 13; resume"),
    ],
)
def test_a_run_does_not_go_on_with_other_options(texts: Path, changes: dict[str, Any], match: str) -> None:
    on_progress, stop = after(2)
    train(options(texts), on_progress=on_progress, stop=stop)
    assert stopped_seed(texts.parent / "gpt") == 0
    with pytest.raises(InputError, match=match):
        train(options(texts, **changes), resume=True)


def test_a_run_does_not_go_on_with_another_text(texts: Path) -> None:
    on_progress, stop = after(2)
    train(options(texts), on_progress=on_progress, stop=stop)
    (texts / "0.txt").write_text("new words")
    with pytest.raises(InputError, match=r"the run that was stopped has (corpus|validation) = "):
        train(options(texts), resume=True)


def test_there_must_be_something_to_resume(texts: Path) -> None:
    with pytest.raises(InputError, match="nothing to resume: no run was stopped there"):
        train(options(texts), resume=True)
    completed(options(texts))
    with pytest.raises(InputError, match="nothing to resume: its run is complete"):
        train(options(texts), resume=True)


def test_a_stopped_run_and_a_checkpoint_are_not_overwritten(texts: Path) -> None:
    on_progress, stop = after(2)
    train(options(texts), on_progress=on_progress, stop=stop)
    with pytest.raises(InputError, match="holds a run that was stopped"):
        train(options(texts))
    with pytest.raises(InputError, match="exists; choose a new folder"):
        train(options(texts, "texts"))
    with pytest.raises(InputError, match="exists; choose a new folder"):
        train(options(texts, "tiny.toml"))
    with pytest.raises(InputError, match="could not be made"):
        train(options(texts, "tiny.toml/gpt"))


def test_a_loss_that_is_not_finite_ends_the_run_and_names_a_remedy_that_helps(texts: Path) -> None:
    remedy = r"the loss is (nan|inf) at step \d+; start again, in a new folder, with a learning rate below"
    with pytest.raises(GptOnnxError, match=remedy):
        train(options(texts, steps=200, learning_rate=1e30, gradient_clip=1e30))


def test_weights_that_the_last_step_ruined_are_not_kept(texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpt_onnx.train.loop.mean_loss", lambda *_: float("nan"))
    with pytest.raises(GptOnnxError, match="the loss is nan at step 4; start again"):
        train(options(texts, "deep/gpt"))
    assert not (texts.parent / "deep").exists()


FAILED_STARTS: dict[str, dict[str, Any]] = {
    "no such corpus": {"corpus": (Path("nowhere"),)},
    "no such configuration": {"config": "nothing"},
    "a checkpoint without a tokenizer": {"init": Path("bare")},
}


@pytest.mark.parametrize("name", FAILED_STARTS)
def test_a_failed_start_leaves_nothing_behind(texts: Path, name: str) -> None:
    torch.manual_seed(0)
    config = GPTConfig(vocab_size=300, context_length=16, n_embd=16, n_layer=1, n_head=2)
    write_checkpoint(texts.parent / "bare", config, GPT(config).state_dict())
    changes = dict(FAILED_STARTS[name])
    if "init" in changes:
        changes["init"] = texts.parent / changes["init"]
    before = sorted(texts.parent.iterdir())
    with pytest.raises(GptOnnxError):
        train(options(texts, "deep/down/gpt", **changes))
    assert sorted(texts.parent.iterdir()) == before


def test_what_a_killed_start_left_is_not_taken_for_the_texts_of_the_next(texts: Path) -> None:
    """A folder without a state may hold the ids of other texts."""
    other = texts.parent / "other.txt"
    other.write_text("entirely different words about other things " * 20)
    on_progress, stop = after(2)
    train(options(texts, "stale", corpus=(other,), validation=(other,)), on_progress=on_progress, stop=stop)
    (texts.parent / "stale" / WORK_FOLDER / STATE_FILE).unlink()
    completed(options(texts, "stale"))
    completed(options(texts, "fresh"))
    assert_equal_weights(texts.parent / "stale", texts.parent / "fresh")


def test_a_configuration_must_exist(texts: Path) -> None:
    with pytest.raises(ConfigError, match="'nothing' is neither a file nor one of gpt2"):
        train(options(texts, config="nothing"))


def test_a_corpus_shorter_than_a_window_is_refused(texts: Path) -> None:
    for number in range(1, 7):
        (texts / f"{number}.txt").unlink()
    (texts / "0.txt").write_text("x")
    with pytest.raises(InputError, match="the corpus has 3 tokens and one window 17"):
        train(options(texts, validation=(texts / "7.txt",), corpus=(texts / "0.txt",)))


def test_bf16_trains_too_and_stores_half_precision(texts: Path) -> None:
    report = completed(options(texts, steps=60, precision="bf16", store="fp16"))
    assert report.validation_loss < 4.0
    assert {info.dtype for info in read_checkpoint(texts.parent / "gpt").tensors.values()} == {"F16"}


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"corpus": ()}, "no corpus"),
        ({"steps": 1, "tokens": 1}, "more than one"),
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": float("nan")}, "learning_rate is nan; it must be above 0 and finite"),
        ({"held_out": 1.0}, "held_out is 1.0; it must be above 0 and below 1"),
        ({"dropout": 1.0}, "dropout is 1.0; it must be at least 0 and below 1"),
        ({"warmup": -0.1}, "warmup is -0.1; it must be from 0 to 1"),
        ({"seed": -1}, "seed is -1; it must be from 0 to 9223372036854775807"),
        ({"precision": "fp8"}, "precision is 'fp8'"),
    ],
)
def test_options_out_of_range_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        options(Path("x"), **changes)


def test_steps_follow_from_tokens_and_epochs() -> None:
    base = TrainOptions(corpus=(Path("x"),), output=Path("y"), batch_size=8)
    assert base.total_steps(1000, 16) == 40  # five epochs of 1000 tokens, 128 a step: 39.06
    assert dataclasses.replace(base, tokens=1280).total_steps(1000, 16) == 10
    assert dataclasses.replace(base, tokens=1281).total_steps(1000, 16) == 11
    assert dataclasses.replace(base, epochs=0.128).total_steps(1000, 16) == 1
    assert dataclasses.replace(base, steps=3).total_steps(1000, 16) == 3
