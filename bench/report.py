"""A run as a page: pictures first, few words, and what it was measured on."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

from bench import peers, plots
from bench.scene import TASKS, Curves, Scene
from bench.scenes import CURVES, SCENES

MARK = "<!-- measured: what follows is written by `make bench-full` -->"
HEADLINE = {"pyslot": "pyslot, redis-py", "bare EVALSHA": "bare EVALSHA, redis-py", "LiteLLM": "LiteLLM"}
"""What the page calls it -> the contestant: all through redis-py, which is what LiteLLM uses."""

Results = dict[str, Any]


def write(results: Results, page: Path) -> None:
    """Write the page below its mark and, in a folder of its name, its pictures; what is above the mark stays."""
    folder = page.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for left in folder.glob("*.svg"):
        left.unlink()
    kept = page.read_text().partition(MARK)[0] if page.exists() else "# Benchmarks\n\n"
    text = [kept + MARK, "", *_head(results, folder)]
    for scene in SCENES:
        text += _scene(results, scene, folder)
    for curves in CURVES:
        text += _curves(results, curves, folder)
    text += _differences()
    text += _bars(results.get("bars", []))
    text += _measured_on(results)
    page.write_text("\n".join(text).rstrip() + "\n")


def _head(results: Results, folder: Path) -> list[str]:
    found = results["scenes"][SCENES[0].name]
    servers = [place for place in found if not place.endswith(" cluster")]
    shown = {name: found[servers[0]][who] for name, who in HEADLINE.items() if who in found[servers[0]]}
    plots.headline(folder / "headline.svg", shown)
    size = results["size"]
    rows = [
        f"| {_place(results, place)} | {name} | {_figures(found[place][who])} |"
        for place in servers
        for name, who in HEADLINE.items()
        if who in found[place]
    ]
    headline = SCENES[0].longer * size["seconds"]
    about = (
        f"Medians of {size['rounds']} rounds of {headline:g} s (below, mostly of {size['seconds']:g} s), every "
        "contestant in each of them, after one more to warm up. The thin line on a bar is the middle half of the "
        "rounds. The server's time is all that its process used, network included. Tasks ask again as soon as they are "
        "answered: these are latencies under as much load as one process of Python gives. All through redis-py, "
        f"{TASKS} tasks."
    )
    return [
        f"## The last run: {results['about']['machine']['taken on']}",
        "",
        f"A gateway's request, 12 limits at once, on {_place(results, servers[0])}:",
        "",
        f"![A gateway's request: {', '.join(shown)}]({folder.name}/headline.svg)",
        "",
        "| server | | requests a second | middle half | p50 | p99 | server's processor, a request |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        about,
        "",
    ]


def _figures(loads: list[dict[str, Any]]) -> str:
    rate, p50, p99, server = (median(load[what] for load in loads) for what in ("rate", "p50", "p99", "server"))
    low, high = plots.middle_half([load["rate"] for load in loads])
    spread = f"{low:,.0f} to {high:,.0f}"
    return f"{rate:,.0f} | {spread} | {p50 * 1e3:.1f} ms | {p99 * 1e3:.1f} ms | {server:.0f} µs"


def _scene(results: Results, scene: Scene, folder: Path) -> list[str]:
    found = results["scenes"][scene.name]
    text = [f"### {scene.name}", "", scene.says, ""]
    for kind, clusters in (("", False), (" on clusters", True)):
        places = {
            _place(results, place): loads for place, loads in found.items() if place.endswith(" cluster") == clusters
        }
        if places:
            picture = f"{_slug(scene.name + kind)}.svg"
            plots.bars(folder / picture, places)
            text += [f"![{scene.name}{kind}: steps a second]({folder.name}/{picture})", ""]
    return text


def _curves(results: Results, curves: Curves, folder: Path) -> list[str]:
    picture = f"{_slug(curves.name)}.svg"
    places = {_place(results, place): found for place, found in results["curves"][curves.name].items()}
    plots.curves(folder / picture, places, curves.unit)
    return [f"### {curves.name}", "", curves.says, "", f"![{curves.name}]({folder.name}/{picture})", ""]


def _differences() -> list[str]:
    rows = [f"| {who} | {what} |" for who, what in peers.DIFFERS.items()]
    where = "On clusters the bare scripts are the only company: they say what the client costs there."
    return ["### What each does otherwise", "", "| | than pyslot |", "|---|---|", *rows, "", where, ""]


def _bars(found: list[dict[str, Any]]) -> list[str]:
    if not found:
        return []
    rows = [
        f"| {b['name']} | {b['figure']} | {b['wanted']} | {'yes' if b['reached'] else '**no**'} | {b['floor']} |"
        for b in found
    ]
    columns = ["| | figure (middle half) | wanted | reached | without the library |", "|---|---|---|---|---|"]
    return ["### The bars", "", *columns, *rows, ""]


def _measured_on(results: Results) -> list[str]:
    rows = [f"| {name} | {version} |" for name, version in results["places"].items()]
    for group in results["about"].values():
        rows += [f"| {what} | {which} |" for what, which in group.items()]
    return ["### Measured on", "", "| | |", "|---|---|", *rows]


def _place(results: Results, name: str) -> str:
    """As the page writes it: "Valkey 9.1.2 cluster"."""
    family, _, rest = name.partition("-")
    version = results["places"].get(name)
    return f"{family.title()} {version}{' cluster' if rest.endswith('cluster') else ''}" if version else name


def _slug(name: str) -> str:
    return "".join(letter for letter in name.lower().replace(" ", "-") if letter.isalnum() or letter == "-")
