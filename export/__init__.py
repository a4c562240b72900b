"""The exporter: trace a GPT, rewrite its graph, write it, and check it against the original.

from gpt_onnx.export import export_bundle
report = export_bundle("models/sotu", "bundle", target="cpu")
report.manifest.checked             # True: nothing unchecked is published unless asked for
"""

if __name__ != "gpt_onnx.export":
    raise ImportError("import gpt_onnx.export, not the folder 'export'")

from .options import ExportOptions
from .pipeline import BundleReport, export_bundle
from .plan import ExportPlan, plan_export
from .source import config_template
from .targets import TARGETS, Target

__all__ = [
    "TARGETS",
    "BundleReport",
    "ExportOptions",
    "ExportPlan",
    "Target",
    "config_template",
    "export_bundle",
    "plan_export",
]
