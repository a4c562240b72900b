"""Say in one sentence when the interpreter is too old or too new, before anything is installed."""

import sys

if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    found = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"Python {found} was found; 3.11 to 3.13 is needed: make PYTHON=/path/to/python3.11")
