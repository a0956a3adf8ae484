"""The command line: `pyslot doctor`, `top`, `scripts`, `replay`, `demo` and `bench`."""

from __future__ import annotations

import sys


def main() -> None:
    """The command `pyslot`."""
    try:
        from pyslot.cli.app import run  # noqa: PLC0415  # what it needs comes with an extra
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("pyslot"):
            raise
        sys.exit(f"Error: the command line needs the package {error.name!r}: pip install 'pyslot-limits[cli]'")
    sys.exit(run())
