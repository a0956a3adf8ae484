"""What commands have in common on the screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

Tick: TypeAlias = Callable[[float], None]
"""Moves a progress bar to a part of the whole, from 0 to 1."""

url_argument = click.argument("url", envvar="PYSLOT_URL", metavar="URL")
prefix_option = click.option(
    "--prefix", default="pyslot", show_default=True, help="What the limiters' keys start with."
)
patience_option = click.option(
    "--patience",
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="How long to wait for an answer.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")


def own_version() -> str:
    """pyslot's."""
    try:
        return version("pyslot-limits")
    except PackageNotFoundError:
        return "of a checkout"


def console() -> Console:
    """Standard output: as wide as the terminal up to 100 columns, or 80 columns of plain text where it is piped."""
    screen = Console()
    return Console(width=min(screen.width, 100) if screen.is_terminal else 80, highlight=False)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Say what is being waited for, on the terminal if standard error is one; gone when the block ends."""
    screen = Console(stderr=True, highlight=False)
    if not screen.is_terminal:
        yield
        return
    with screen.status(f"{what} …"):
        yield


@contextmanager
def progress(out: Console, title: str) -> Iterator[Tick]:
    """A bar that is gone when its block ends; nothing at all where the output is piped."""
    columns = (TextColumn("{task.description}"), BarColumn(None), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, expand=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda part: bar.update(task, completed=part)
