"""How fast a bundle decodes on this machine, in a few steps: an impression, not a benchmark."""

from __future__ import annotations

import time

import numpy as np

from gpt_onnx.runtime import OnnxGPT

PROMPT = 32  # tokens
STEPS = 24
WARM = 4  # steps that are not timed


def decode_tokens_per_s(engine: OnnxGPT) -> float:
    """Return tokens per second of one sequence after a short prompt, from the median step.

    Args:
        engine: Of the bundle.

    Raises:
        BundleError: if the graph fails.
    """
    room = engine.limit or engine.bundle.manifest.model.context_length or PROMPT + STEPS
    prompt = max(1, min(PROMPT, room - STEPS))
    decoder = engine.decoder(capacity=prompt + STEPS)
    token = int(decoder.append([[1 % engine.vocab_size] * prompt])[0].argmax())
    times = []
    for _ in range(min(STEPS, room - prompt)):
        start = time.perf_counter()
        token = int(decoder.step(token).argmax())
        times.append(time.perf_counter() - start)
    return 1 / float(np.median(times[WARM:] or times)) if times else float("nan")
