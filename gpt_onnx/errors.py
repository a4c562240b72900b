"""Every error that a user can meet.

    GptOnnxError
    ├── ConfigError       a configuration that contradicts itself or is not understood
    ├── CheckpointError   weights that are missing, damaged, or not what the configuration says
    ├── ExportError       a graph that could not be made, or a broken promise in one that was
    ├── ParityError       the graph and the original program compute different numbers
    ├── BundleError       a bundle that is damaged, incomplete, foreign or too new
    ├── ProviderError     an execution provider or a package that is not to be had here
    └── InputError        ids, prompts, options or files that a command or a call cannot use

Each message is one sentence with the value found, the value expected and the remedy.
"""

from __future__ import annotations

__all__ = [
    "BundleError",
    "CheckpointError",
    "ConfigError",
    "ExportError",
    "GptOnnxError",
    "InputError",
    "ParityError",
    "ProviderError",
]


class GptOnnxError(Exception):
    """The root: catch it to catch all of them. ``exit_code`` is what the command line returns."""

    exit_code = 1
    has_lists = False
    """Whether a message may have several lines, for a list of many things in the middle of its sentence."""


class ConfigError(GptOnnxError):
    """A configuration that contradicts itself or names something unknown."""


class CheckpointError(GptOnnxError):
    """Weights that are missing, damaged, or of another shape than the configuration says."""


class ExportError(GptOnnxError):
    """A graph that could not be made, or that breaks a promise of the graph contract."""


class ParityError(GptOnnxError):
    """The graph and the original program compute different numbers."""

    exit_code = 3


class BundleError(GptOnnxError):
    """A bundle that is damaged, incomplete, foreign, or of a newer format."""


class ProviderError(GptOnnxError):
    """An execution provider, or the package that brings it, is missing or was not used."""


class InputError(GptOnnxError):
    """Token ids, a prompt, an option or a file that cannot be used."""
