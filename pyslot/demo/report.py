"""What the demo says on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from pyslot.demo.figures import Chapter

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
