"""Draws the pictures of the documentation into docs/pictures: `make pictures`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PICTURES = ROOT / "docs" / "pictures"
GREEN, RED, GREY, BLUE = "#4c9a6a", "#d1495b", "#c9ced6", "#30638e"


def main() -> None:
    mpl.rcParams["svg.hashsalt"] = "pyslot"  # the same picture is the same file
    window()
    lease()
    trace = ROOT / "pyslot/demo/azure-llm-code-2023-excerpt.csv"
    limits = ["--slots", "20", "--rpm", "200", "--tpm", "500000"]
    subprocess.run(  # ours
        [sys.executable, "-m", "pyslot.cli", "replay", str(trace), *limits, "--plot", str(PICTURES / "replay.svg")],
        check=True,
        cwd=ROOT,
    )


def window() -> None:
    """The worked timeline of docs/concepts.md: what the window has counted."""
    axes = _axes("tokens used", 70)
    axes.step([0, 5, 6, 60, 70], [60, 25, 100, 40, 40], where="post", color=GREEN, linewidth=2)
    axes.fill_between([0, 5, 6, 60, 70], [60, 25, 100, 40, 40], step="post", color=GREEN, alpha=0.25)
    axes.axhline(100, color="black", linestyle="--", linewidth=1)
    axes.axvline(60, color=GREY)
    axes.set_ylim(0, 150)
    for at, height, text, color in (
        (7, 50, "60 reserved, settled at 25", GREEN),
        (1, 110, "60 more: refused,\ncome back in 59 s", RED),
        (24, 106, "75 more: granted, 100 of 100", GREEN),
        (60.5, 106, "rolls", BLUE),
        (60.5, 43, "40 reserved", GREEN),
    ):
        axes.text(at, height, text, color=color, fontsize=9)
    _save(axes, "window.svg")


def lease() -> None:
    """The worked timeline of docs/concepts.md: who has the slot."""
    axes = _axes("", 100)
    axes.set_yticks([0, 1], ["B", "A"])
    axes.set_ylim(-0.6, 1.9)
    axes.barh(1, 35, color=GREEN, height=0.4)
    axes.barh(1, 45, left=35, color=GREY, height=0.4)
    axes.barh(0, 20, left=80, color=GREEN, height=0.4)
    for at, row, text, color in (
        (0, 1.3, "acquires:\nleased until 60", GREEN),
        (20, 1.3, "renews:\nuntil 80", GREEN),
        (36, 1.3, "is killed: nobody renews,\nthe lease runs out", BLUE),
        (30, -0.1, "tries: refused", RED),
        (66, -0.1, "refused", RED),
        (80, 0.3, "acquires", GREEN),
    ):
        axes.text(at, row, text, color=color, fontsize=9)
    _save(axes, "lease.svg")


def _axes(label: str, seconds: int) -> Axes:
    axes = Figure(figsize=(8, 2.6), layout="constrained").subplots()
    axes.set_xlim(0, seconds)
    axes.set_xlabel("seconds")
    axes.set_ylabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    return axes


def _save(axes: Axes, name: str) -> None:
    figure = axes.figure
    figure.patch.set_facecolor("white")
    figure.savefig(PICTURES / name, metadata={"Date": None})  # type: ignore[union-attr]


if __name__ == "__main__":
    main()
