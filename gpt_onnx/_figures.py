"""Figures as people read them: true whatever their size.

    >>> decimals(1.00236, 4), decimals(3.2e-9, 4), decimals(float("nan"), 4)
    ('1.0024', '3.2e-09', 'unknown')
    >>> exponential(0.00236, 0.0005)
    '1.0024 +- 0.0005'
    >>> exponential(-1200.5, 2.0)
    'e^(-1,200.5 +- 2.0)'

Standard library only.
"""

from __future__ import annotations

import math

LARGEST = 1e9
"""From here on a number is told as a power of ten."""


def significant(number: float) -> str:
    """Return two significant digits of a number; what is none is unknown."""
    return "unknown" if math.isnan(number) else f"{number:.2g}"


def decimals(number: float, digits: int) -> str:
    """Return a number with so many decimals; in powers of ten where they would show none of it, or too many.

    What is no number (the error of a single value) is unknown.
    """
    if math.isnan(number):
        return "unknown"
    size = abs(number)
    is_plain = size == 0 or (10**-digits / 2 <= size < LARGEST)
    return f"{number:,.{digits}f}" if is_plain else f"{number:.3g}"


def exp(number: float) -> float | None:
    """Return e to a number; None where float64 has no such number, or none but 0."""
    try:
        value = math.exp(number)
    except OverflowError:
        return None
    return value if value and math.isfinite(value) else None


def with_error(number: float, error: float, digits: int = 4, unit: str = "") -> str:
    """Return a number and its standard error, both in a unit."""
    return f"{decimals(number, digits)} +- {decimals(error, digits)}{unit}"


def exponential(logarithm: float, error: float, digits: int = 4) -> str:
    """Return a number and its standard error by its logarithm and the error of that."""
    value = exp(logarithm)
    if value is None:
        return f"e^({with_error(logarithm, error, 1)})"
    return with_error(value, value * error, digits)
