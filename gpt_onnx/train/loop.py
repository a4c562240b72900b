"""The run: steps, validations, the best checkpoint kept, and a state from which a killed run goes on.

While it runs, the output holds the best checkpoint so far and a folder ``training/`` with the ids and the
state; when it is complete, the folder goes and ``training.json`` says what was done.
"""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from gpt_onnx._interrupts import interrupts_held
from gpt_onnx._whole_files import replace_file
from gpt_onnx.checkpoint import load_model, read_checkpoint, write_checkpoint
from gpt_onnx.errors import GptOnnxError, InputError
from gpt_onnx.model import GPT
from gpt_onnx.train.data import TrainingData, fingerprint, prepare
from gpt_onnx.train.evaluate import bits_per_byte, mean_loss, token_loss
from gpt_onnx.train.optimizer import learning_rate_factor, make_optimizer, set_learning_rate
from gpt_onnx.train.options import TrainOptions, TrainProgress, TrainReport
from gpt_onnx.train.state import RunState, load_state, read_state, save_state
from gpt_onnx.train.tokens import random_windows

WORK_FOLDER = "training"
STATE_FILE = "state.safetensors"
REPORT_FILE = "training.json"


def _diverged(loss: float, step: int, learning_rate: float) -> GptOnnxError:
    """Return the error for a loss that is not finite: the same run, resumed, would come there again."""
    return GptOnnxError(
        f"the loss is {loss} at step {step}; start again, in a new folder, with a learning rate below "
        f"{learning_rate:g}."
    )


def _first_model(data: TrainingData) -> GPT:
    """Return the model before the first step: random, or the weights of a checkpoint."""
    model = GPT(data.config)
    if data.init is not None:
        model.load_state_dict(load_model(data.init).state_dict())
    return model


class _Run:
    """One process's part of a run: the model, its optimizer, the generator of batches and the state."""

    def __init__(self, options: TrainOptions, data: TrainingData) -> None:
        torch.manual_seed(options.seed)
        self.options = options
        self.data = data
        self.model = _first_model(data)
        self.optimizer = make_optimizer(self.model, options.weight_decay)
        self.batches = torch.Generator().manual_seed(options.seed)
        self.total_steps = options.total_steps(len(data.training), data.config.context_length)
        self.state = RunState(fingerprint=fingerprint(options, data))
        self.state_path = options.output / WORK_FOLDER / STATE_FILE
        self.started = time.perf_counter()
        self.first_step = 0

    @property
    def tokens_per_step(self) -> int:
        return self.options.batch_size * self.data.config.context_length

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def resume(self) -> None:
        """Take up the saved state, if it is of the same run."""
        saved = load_state(self.state_path, self.model, self.optimizer, self.batches)
        _check_same_run(saved.fingerprint, self.state.fingerprint)
        self.state = saved
        self.first_step = saved.step
        self.started -= saved.seconds

    def save(self) -> None:
        """Write the state; before the first step there is nothing to save."""
        if self.state.step:
            self.state.seconds = self.seconds
            save_state(self.state_path, self.state, self.model, self.optimizer, self.batches)

    def step(self) -> float:
        """Learn from one batch and return its loss, nats a token.

        Raises:
            GptOnnxError: if the loss is not finite.
        """
        options, step = self.options, self.state.step
        factor = learning_rate_factor(step, self.total_steps, options.warmup, options.final_learning_rate)
        set_learning_rate(self.optimizer, factor * options.learning_rate)
        length = self.data.config.context_length + 1
        windows = random_windows(self.data.training, options.batch_size, length, self.batches)
        loss = token_loss(self.model, windows, options.precision)
        if not torch.isfinite(loss):
            raise _diverged(loss.item(), step + 1, options.learning_rate)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self.model.parameters(), options.gradient_clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.state.step += 1
        return loss.item()

    def validate(self) -> float:
        """Measure, keep the checkpoint if it is the best so far, save the state; return nats a token.

        Raises:
            GptOnnxError: if the loss is not finite: the last step may have ruined the weights.
        """
        loss = mean_loss(self.model, self.data.validation, self.options.precision)
        if not math.isfinite(loss):
            raise _diverged(loss, self.state.step, self.options.learning_rate)
        if loss < self.state.best_loss:
            self.state.best_loss, self.state.best_step = loss, self.state.step
            write_checkpoint(
                self.options.output,
                self.data.config,
                self.model.state_dict(),
                self.data.tokenizer,
                store=self.options.store,
                overwrite=True,
                generation=self.data.generation,
            )
        self.save()
        return loss

    def bits(self, loss: float) -> float:
        """Turn nats a token of the validation text into bits a byte."""
        return bits_per_byte(loss, len(self.data.validation) - 1, self.data.validation_bytes)

    def report(self) -> TrainReport:
        """Measure the checkpoint as it is stored."""
        model = load_model(read_checkpoint(self.options.output))
        loss = mean_loss(model, self.data.validation)
        return TrainReport(
            steps=self.state.step,
            tokens_seen=self.state.step * self.tokens_per_step,
            training_tokens=len(self.data.training),
            parameters=model.parameter_count(),
            best_step=self.state.best_step,
            validation_loss=loss,
            bits_per_byte=self.bits(loss),
            validation_bytes=self.data.validation_bytes,
            validation_tokens=len(self.data.validation),
            seconds=self.seconds,
        )


def train(
    options: TrainOptions,
    *,
    resume: bool = False,
    on_progress: Callable[[TrainProgress], object] | None = None,
    stop: Callable[[], bool] | None = None,
) -> TrainReport | None:
    """Train a model and leave the best checkpoint in ``options.output``.

    Args:
        options: What to train on, and how.
        resume: Go on where a stopped or killed process of the same options was; the result is the same, bit
            for bit, as if it had never stopped.
        on_progress: Called after each step.
        stop: Asked after each step; true ends the process early with its state saved.

    Returns:
        What came of it; None where ``stop`` ended it, and ``resume`` will go on.

    Raises:
        InputError: if the texts or the output cannot be used, or there is nothing to resume.
        ConfigError: if the configuration is wrong.
        CheckpointError: if the checkpoint or the saved state cannot be written or read.
        GptOnnxError: if the loss is not finite any more.
    """
    _check_output(options.output, resume)
    work = options.output / WORK_FOLDER
    with _work_folder(work), torch.random.fork_rng(devices=[]):
        run = _Run(options, prepare(options, work))
        if resume:
            run.resume()
        if not _run_steps(run, on_progress, stop):
            return None
    report = run.report()
    record = {**asdict(report), "run": json.loads(run.state.fingerprint), "store": options.store}
    text = json.dumps(record, indent=2) + "\n"
    with interrupts_held():
        replace_file(options.output / REPORT_FILE, lambda file: file.write_text(text, encoding="utf-8"))
        shutil.rmtree(work)
    return report


def _make_folder(work: Path) -> None:
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise InputError(f"{work.parent} could not be made: {exc.strerror or exc}.") from exc


@contextlib.contextmanager
def _work_folder(work: Path) -> Iterator[None]:
    """Make the work folder; if the run ends before there is a state to go on from, leave nothing behind.

    Without a state, what a killed process left is of texts and a configuration that may be others now.
    """
    made = [folder for folder in work.parents if not folder.exists()]
    if not (work / STATE_FILE).is_file():
        shutil.rmtree(work, ignore_errors=True)
    try:
        _make_folder(work)
        yield
    except BaseException:
        if not (work / STATE_FILE).is_file():
            with interrupts_held():
                _remove(work, made)
        raise


def _remove(work: Path, made: list[Path]) -> None:
    """Delete the work folder, and the folders that were made for it, but those that hold something by now."""
    shutil.rmtree(work, ignore_errors=True)
    with contextlib.suppress(OSError):
        for folder in made:
            folder.rmdir()


def _run_steps(
    run: _Run, on_progress: Callable[[TrainProgress], object] | None, stop: Callable[[], bool] | None
) -> bool:
    """Do the steps that are left; return whether all were done."""
    begun = time.perf_counter()
    while run.state.step < run.total_steps:
        loss = run.step()
        step = run.state.step
        due = step % run.options.validate_every == 0 or step == run.total_steps
        validation_loss = run.validate() if due else None
        if on_progress is not None:
            tokens = (step - run.first_step) * run.tokens_per_step
            on_progress(
                TrainProgress(
                    step=step,
                    total_steps=run.total_steps,
                    loss=loss,
                    tokens_per_s=tokens / (time.perf_counter() - begun),
                    validation_loss=validation_loss,
                    bits_per_byte=None if validation_loss is None else run.bits(validation_loss),
                )
            )
        if step < run.total_steps and stop is not None and stop():
            run.save()
            return False
    return True


def stopped_seed(output: Path) -> int:
    """Return the seed of the run that was stopped in ``output``, for those who let it be drawn.

    Raises:
        InputError: if no run was stopped there.
        CheckpointError: if its state is damaged.
    """
    _check_output(output, resume=True)
    return int(json.loads(read_state(output / WORK_FOLDER / STATE_FILE).fingerprint)["seed"])


def _check_output(output: Path, resume: bool) -> None:
    state = output / WORK_FOLDER / STATE_FILE
    if resume and not state.is_file():
        found = "its run is complete" if (output / REPORT_FILE).is_file() else "no run was stopped there"
        raise InputError(
            f"{output} has nothing to resume: {found}; train without resuming, into a new folder."
        )
    if not resume and state.is_file():
        raise InputError(f"{output} holds a run that was stopped; resume it, or choose another folder.")
    if not resume and output.exists() and (not output.is_dir() or _holds_files(output)):
        raise InputError(f"{output} exists; choose a new folder for the checkpoint.")


def _holds_files(output: Path) -> bool:
    """Whether a folder holds more than the work folder of a process killed before its first saving."""
    return any(entry.name != WORK_FOLDER for entry in output.iterdir())


def _check_same_run(saved: str, wanted: str) -> None:
    """Refuse to go on with other texts or options; the message names all that differ."""
    old, new = json.loads(saved), json.loads(wanted)
    different = [name for name in old | new if old.get(name) != new.get(name)]
    if different:
        pairs = (f"{name} = {old.get(name)} and this one {new.get(name)}" for name in different)
        raise InputError(
            f"the run that was stopped has {', '.join(pairs)}; "
            "resume it as it was started, or start another in a new folder."
        )
