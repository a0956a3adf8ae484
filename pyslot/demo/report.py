"""What the demo says on the screen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from pyslot.demo.figures import Chapter, Tick


def console() -> Console:
    """Standard output: as wide as the terminal up to 100 columns, or 80 columns of plain text where it is piped."""
    screen = Console()
    return Console(width=min(screen.width, 100) if screen.is_terminal else 80, highlight=False)


_VERDICTS = {True: "[green]OK[/]", False: "[bold red]OFF[/]", None: ""}


def show(out: Console, chapter: Chapter) -> None:
    table = Table("figure", "expected", "seen", "", expand=True)
    for figure in chapter.figures:
        table.add_row(figure.what, figure.expected, figure.seen, _VERDICTS[figure.ok])
    out.print(f"[bold]{chapter.title}[/]")
    out.print(chapter.story)
    out.print(table)
    out.print()


def conclude(out: Console, chapters: Sequence[Chapter], seconds: float) -> int:
    """Say how many figures are off; returns the exit status."""
    figures = [figure for chapter in chapters for figure in chapter.figures if figure.ok is not None]
    off = sum(not figure.ok for figure in figures)
    verdict = f"[bold red]{off} of {len(figures)} figures are OFF[/]" if off else f"All {len(figures)} figures are OK"
    out.print(f"{verdict} ({seconds:.0f} s).")
    return 1 if off else 0


@contextmanager
def progress(out: Console, title: str) -> Iterator[Tick]:
    """A bar that is gone when its block ends; nothing at all where the output is piped."""
    columns = (TextColumn("{task.description}"), BarColumn(None), TimeElapsedColumn())
    with Progress(*columns, console=out, transient=True, expand=True, disable=not out.is_terminal) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda part: bar.update(task, completed=part)
