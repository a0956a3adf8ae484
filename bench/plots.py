"""Pictures of a run, as SVG. The same figures make the same file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

OURS, ALONE, BARE, LITELLM, OTHERS = "#1f6feb", "#8db7f5", "#6e7781", "#d9822b", "#c3c9d1"
LINES = ("#1f6feb", "#d9822b", "#4c9a6a", "#8250df")
STYLE: Any = {
    "svg.hashsalt": "pyslot",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}

Load = dict[str, Any]
"""As `rounds.Load`."""
Loads = dict[str, list[Load]]
"""Who -> each round's."""
Panel = tuple[str, Mapping[str, list[float]]]
"""Its title, and who -> each round's figure."""


def headline(path: Path, contestants: Loads) -> None:
    """Four panels: the more, the better in the first, the less in the others."""
    panels: list[Panel] = [
        ("requests a second\nmore is better", _of(contestants, "rate", 1)),
        ("median latency, ms\nless is better", _of(contestants, "p50", 1e3)),
        ("p99 latency, ms\nless is better", _of(contestants, "p99", 1e3)),
        ("server, µs a request\nless is better", _of(contestants, "server", 1)),
    ]
    notes: list[dict[str, str]] = [{} for _ in panels]
    _bars(path, panels, list(reversed(contestants)), notes)


def bars(path: Path, places: dict[str, Loads]) -> None:
    """A panel for each place: steps a second, the fastest of the first place on top."""
    first = next(iter(places.values()))
    who = sorted(first, key=lambda each: median(load["rate"] for load in first[each]))
    notes = [{each: _note(rounds) for each, rounds in loads.items()} for loads in places.values()]
    _bars(path, [(name, _of(loads, "rate", 1)) for name, loads in places.items()], who, notes)


def curves(path: Path, places: dict[str, dict[str, Any]], unit: str) -> None:
    """Medians against what grows: a panel for each thing that grows, or else for each place."""
    grows = list(next(iter(places.values())))
    if len(grows) > 1:
        panels: list[tuple[str, dict[str, Any]]] = [
            (what, {place: found[what]["pyslot"] for place, found in places.items()}) for what in grows
        ]
    else:
        panels = [(place, found[grows[0]]) for place, found in places.items()]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(max(5.0, 2.9 * len(panels)), 3), layout="constrained")
        row = figure.subplots(1, len(panels), squeeze=False, sharey=len(grows) == 1)[0]
        for axes, (title, lines) in zip(row, panels, strict=True):
            for (name, curve), colour in zip(lines.items(), LINES, strict=False):
                figures = [median(each) for each in curve.values()]
                axes.plot([int(size) for size in curve], figures, marker="o", ms=3, color=colour, label=name)
            axes.set_xscale("log")
            sizes = sorted({int(size) for curve in lines.values() for size in curve})
            axes.set_xticks(sizes, [f"{size:,}" if size < 10_000 else f"{size // 1_000}k" for size in sizes])
            axes.minorticks_off()
            axes.set_ylim(bottom=0)
            axes.set_xlabel(title if len(grows) > 1 else grows[0])
            axes.set_title("" if len(grows) > 1 else title, loc="left")
        figure.axes[0].set_ylabel(unit)
        figure.legend(*row[0].get_legend_handles_labels(), loc="outside upper left", ncols=4, frameon=False)
        _save(figure, path)


def _bars(path: Path, panels: list[Panel], who: list[str], notes: list[dict[str, str]]) -> None:
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.6 + max(2.3 * len(panels), 5.5), 0.7 + 0.3 * len(who)), layout="constrained")
        row = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, figures), said in zip(row, panels, notes, strict=True):
            axes.set_title(title, loc="left", fontsize=9)
            _fill(axes, figures, [each for each in who if each in figures], said)
        _save(figure, path)


def _fill(axes: Axes, figures: Mapping[str, list[float]], who: list[str], notes: dict[str, str]) -> None:
    """Bars of medians, the middle half of the rounds marked."""
    values = [median(figures[each]) for each in who]
    halves = [middle_half(figures[each]) for each in who]
    spread = [
        [value - low for value, (low, _) in zip(values, halves, strict=True)],
        [high - value for value, (_, high) in zip(values, halves, strict=True)],
    ]
    marks = {"elinewidth": 1, "ecolor": "#24292f"}
    axes.barh(who, values, xerr=spread, color=[_colour(each) for each in who], error_kw=marks)
    for at, each in enumerate(who):
        text = f"{values[at]:,.0f}" if values[at] >= 100 else f"{values[at]:.3g}"
        axes.text(halves[at][1], at, f"  {text}  {notes.get(each, '')}", va="center", fontsize=7)
    axes.set_xlim(0, 1.75 * max(high for _, high in halves))
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)


def middle_half(figures: list[float]) -> tuple[float, float]:
    """Where the middle half of the rounds begins and ends."""
    found = sorted(figures)
    return found[len(found) // 4], found[-(len(found) // 4) - 1]


def _of(contestants: Loads, what: str, factor: float) -> dict[str, list[float]]:
    return {who: [load[what] * factor for load in loads] for who, loads in contestants.items()}


def _note(rounds: list[Load]) -> str:
    if rounds[0]["used"] is not None:
        return f"{median(load['used'] for load in rounds):.0%} used"
    tail = median(load["p99"] for load in rounds)
    return f"p99 {tail * 1e3:.1f} ms" if tail >= 1e-3 else f"p99 {tail * 1e6:.0f} µs"


def _colour(who: str) -> str:
    if who.startswith("pyslot"):
        return ALONE if "by itself" in who else OURS
    known = {"bare": BARE, "LiteLLM": LITELLM}
    return next((colour for start, colour in known.items() if who.startswith(start)), OTHERS)


def _save(figure: Figure, path: Path) -> None:
    figure.savefig(path, metadata={"Creator": None, "Date": None})
