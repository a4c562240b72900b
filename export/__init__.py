"""The exporter: trace a GPT, rewrite its graph, write it, and check it against the original.

from gpt_onnx.export import export_bundle
report = export_bundle("models/sotu", "bundle", target="cpu")
report.manifest.checked             # True: nothing unchecked is published unless asked for
"""

if __name__ != "gpt_onnx.export":
    raise ImportError("import gpt_onnx.export, not the folder 'export'")

from .options import ExportOptions
from .pipeline import BundleReport, export_bundle
from .targets import TARGETS, Target

__all__ = ["TARGETS", "BundleReport", "ExportOptions", "Target", "export_bundle"]
