"""A static site that runs a bundle in the browser.

    from gpt_onnx.web import build_site, vendor
    report = build_site("bundle", "site", partial(vendor, cache_folder))
    report.first_visit_bytes

Neither torch nor onnx is imported. The page itself, HTML, CSS and JavaScript, is in ``site/``; the libraries
of others that it uses come from npm, pinned in ``npm/``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpt_onnx.web._build import SiteReport as SiteReport
    from gpt_onnx.web._build import build_site as build_site
    from gpt_onnx.web._fit import check_fit as check_fit
    from gpt_onnx.web._serve import serve as serve
    from gpt_onnx.web._vendor import vendor as vendor

__all__ = ["SiteReport", "build_site", "check_fit", "serve", "vendor"]

_HOMES = {
    "SiteReport": "_build",
    "build_site": "_build",
    "check_fit": "_fit",
    "serve": "_serve",
    "vendor": "_vendor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'gpt_onnx.web' has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
