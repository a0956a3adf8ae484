"""A picture of a replay."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from pyslot.replay.summary import REQUESTS, SLOTS, TOKENS, Refusers, Summary

_ADMITTED, _WANTED = "#4c9a6a", "#c9ced6"
_REFUSED = ("#d1495b", "#edae49", "#8d6cab", "#30638e", "#b5651d", "#7a7a7a", "#222222")


def plot(summary: Summary, subjects: int, path: Path) -> None:
    """Write an SVG or PNG: requests, requests in flight and tokens, over the minutes of the trace."""
    figure = Figure(figsize=(9, 9), layout="constrained")
    requests, flying, tokens = figure.subplots(3, sharex=True, gridspec_kw={"height_ratios": (3, 2, 2)})
    _requests(requests, summary)
    _flying(flying, summary)
    _tokens(tokens, summary)
    if subjects == 1:
        for axes, name in ((requests, REQUESTS), (flying, SLOTS), (tokens, TOKENS)):
            if name in summary.limits:
                axes.axhline(summary.limits[name], color="black", linestyle="--", linewidth=1, label="limit")
    for axes in (requests, flying, tokens):
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    tokens.set_xlabel(
        "minutes since the first request; a window begins with its first charge, so parts of two may share a bar"
    )
    said = ", ".join(f"{name} {limit:,}" for name, limit in summary.limits.items())
    each = f" for each of {subjects:,} subjects" if subjects > 1 else ""
    refused = summary.refused.total()
    figure.suptitle(f"{summary.admitted:,} admitted, {refused:,} refused\n{said}{each}", fontsize=12)
    # The same figures are the same file.
    fixed = {"Date": None} if path.suffix.lower() == ".svg" else None
    with rc_context({"svg.hashsalt": "pyslot"}):
        figure.savefig(path, dpi=120, metadata=fixed)


def _requests(axes: Axes, summary: Summary) -> None:
    minutes = _minutes(summary)
    kinds: list[Refusers] = [names for names, _ in summary.refused.most_common()]
    bottom = [0] * len(minutes)
    stacks = [("admitted", _ADMITTED, [summary.minutes[at].admitted if at in summary.minutes else 0 for at in minutes])]
    for n, names in enumerate(kinds):
        counts = [summary.minutes[at].refused[names] if at in summary.minutes else 0 for at in minutes]
        stacks.append((f"refused: {' + '.join(names)}", _REFUSED[n % len(_REFUSED)], counts))
    for label, color, counts in stacks:
        axes.bar(minutes, counts, bottom=bottom, width=1, align="edge", color=color, label=label)
        bottom = [low + count for low, count in zip(bottom, counts, strict=True)]
    axes.set_ylabel("requests per minute")


def _flying(axes: Axes, summary: Summary) -> None:
    seconds = sorted(summary.seconds)
    axes.step(
        [second / 60 for second in seconds],
        [summary.seconds[second] for second in seconds],
        where="post",
        color=_ADMITTED,
        linewidth=0.8,
    )
    axes.set_ylabel("in flight")


def _tokens(axes: Axes, summary: Summary) -> None:
    minutes = _minutes(summary)
    for label, color, name in (("wanted", _WANTED, "wanted"), ("used", _ADMITTED, "used")):
        counts = [getattr(summary.minutes[at], name) if at in summary.minutes else 0 for at in minutes]
        axes.bar(minutes, counts, width=1, align="edge", color=color, label=label)
    axes.set_ylabel("tokens per minute")


def _minutes(summary: Summary) -> list[int]:
    return list(range(max(summary.minutes, default=0) + 1))
