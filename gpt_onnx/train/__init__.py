"""Training a GPT from text: a byte-level BPE, AdamW, a cosine, and a run that survives being killed."""

from gpt_onnx.train.loop import stopped_seed, train
from gpt_onnx.train.options import TrainOptions, TrainProgress, TrainReport

__all__ = ["TrainOptions", "TrainProgress", "TrainReport", "stopped_seed", "train"]
