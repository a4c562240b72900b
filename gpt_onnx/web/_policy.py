"""What the page may do, and what lets it use threads: the headers of its files.

The policy stands in the page as well, for servers whose headers nobody can set; there it has no
frame-ancestors, which a page cannot say of itself. No script stands in the page, and none comes from another
host.
"""

from __future__ import annotations

from collections.abc import Mapping

_DIRECTIVES: Mapping[str, str] = {
    "default-src": "'none'",
    "script-src": "'self' 'wasm-unsafe-eval'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "worker-src": "'self'",
    "base-uri": "'none'",
    "form-action": "'none'",
}


def _joined(directives: Mapping[str, str]) -> str:
    return "; ".join(f"{name} {value}" for name, value in directives.items())


PAGE_POLICY = _joined(_DIRECTIVES)
"""What stands in the page."""

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": _joined({**_DIRECTIVES, "frame-ancestors": "'none'"}),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""What every file is sent with: COOP and COEP isolate the page, so that its threads may share memory."""


def headers_file() -> str:
    """Return the headers in the form that static hosts read (``_headers``)."""
    return "/*\n" + "".join(f"  {name}: {value}\n" for name, value in HEADERS.items())
