"""`pyslot demo`: limits that hold, to be watched."""

from __future__ import annotations

import click

from pyslot.errors import UsageError


@click.command("demo")
@click.option("--quick", is_flag=True, help="Less of everything, in about fifteen seconds.")
def command(quick: bool) -> int:
    """See that limits hold, on servers of its own.

    Sixty workers share five slots, callers race for the same tokens on a cluster, and real traffic is replayed and
    counted twice. The exit status is 0 if every figure is as it must be.
    """
    try:
        from pyslot.demo.tour import run  # noqa: PLC0415  # it needs an extra more than the other commands
    except ModuleNotFoundError as error:
        raise UsageError(
            f"the demo needs the package {error.name!r}: pip install 'pyslot-limits[cli,embedded]'"
        ) from error
    return run(quick=quick)
