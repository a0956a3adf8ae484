"""Results as a page of pictures: Markdown with plots beside it."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import matplotlib as mpl

mpl.use("svg")
from matplotlib import pyplot as plt  # the backend is chosen before it is loaded

MARK = "<!-- measured: what follows is written by `make bench-full` -->"
OURS, OTHERS = "#1f6feb", "#b0b7c3"
mpl.rcParams.update({"svg.hashsalt": "pyslot", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False})


def write(results: dict[str, Any], page: Path) -> None:
    """Write the page and, beside it, one plot for each of its pictures."""
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    kept = page.read_text().partition(MARK)[0] if page.exists() else "# Benchmarks\n\n"
    text = [kept + MARK, "", "## The last run", "", results["remark"], ""]
    for name, found in results["servers"].items():
        text += [f"### {name.replace('-', ' ').title()} ({found['version']})", ""]
        for scene, loads in found.items():
            if scene in ("version", "sync", "growth"):
                continue
            figures = {who: [load["rate"] for load in rounds] for who, rounds in loads.items()}
            tails = {who: f"p99 {median(load['p99'] for load in rounds) * 1e3:.1f} ms" for who, rounds in loads.items()}
            text += [picture(folder, f"{name} {scene}", f"{scene}: steps a second, 64 tasks", figures, tails), ""]
        text += [picture(folder, f"{name} sync", "one caller, blocking: microseconds a step", found["sync"], {}), ""]
        text += [grown(folder, f"{name} growth", found["growth"]), ""]
    text += ["### Versions", "", "| | |", "|---|---|"]
    text += [f"| {what} | {which} |" for what, which in results["versions"].items()]
    text += ["", *bars(results.get("bars", []))]
    page.write_text("\n".join(text).rstrip() + "\n")


def bars(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return []
    rows = [f"| {b['name']} | {b['figure']} | {b['wanted']} | {'yes' if b['reached'] else '**no**'} |" for b in found]
    return ["### The bars", "", "| | figure (middle half) | wanted | reached |", "|---|---|---|---|", *rows]


def picture(folder: Path, name: str, title: str, figures: dict[str, list[float]], notes: dict[str, str]) -> str:
    """Bars of medians, with the middle half of the rounds marked; ours in colour."""
    who = sorted(figures, key=lambda each: median(figures[each]))
    values = [median(figures[each]) for each in who]
    spread = [[v - sorted(figures[e])[len(figures[e]) // 4] for e, v in zip(who, values, strict=True)]]
    spread += [[sorted(figures[e])[-(len(figures[e]) // 4) - 1] - v for e, v in zip(who, values, strict=True)]]
    figure, axes = plt.subplots(figsize=(8, 0.6 + 0.38 * len(who)))
    axes.barh(who, values, xerr=spread, color=[OURS if e.startswith("pyslot") else OTHERS for e in who], ecolor="#555")
    for at, each in enumerate(who):
        axes.text(values[at], at + 0.28, f" {values[at]:,.0f}  {notes.get(each, '')}", va="center", fontsize=8)
    axes.set_title(title, loc="left", fontsize=11)
    axes.margins(x=0.18)
    return saved(folder, name, title, figure)


def grown(folder: Path, name: str, found: dict[str, dict[str, float]]) -> str:
    figure, rows = plt.subplots(1, len(found), figsize=(8, 2.4), layout="constrained")
    for axes, (what, values) in zip(rows, found.items(), strict=True):
        axes.plot([int(size) for size in values], list(values.values()), marker="o", color=OURS)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel(what)
    rows[0].set_ylabel("µs of the server a pair")
    return saved(folder, name, "time on the server", figure)


def saved(folder: Path, name: str, title: str, figure: Any) -> str:  # noqa: ANN401  # matplotlib has no types
    path = folder / f"{name.replace(' ', '-').replace(',', '')}.svg"
    figure.savefig(path, bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return f"![{title}]({folder.name}/{path.name})"
