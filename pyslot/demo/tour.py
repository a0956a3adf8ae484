"""The demo as a command: its three chapters, and what to make of them."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from pyslot.cli.screen import console, progress
from pyslot.demo import crowd, race, replay
from pyslot.demo.figures import Chapter, Tick
from pyslot.demo.report import conclude, show
from pyslot.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run it; the status is 0 if every figure is as expected, 1 if one is off, 2 if it can't run here."""
    parser = argparse.ArgumentParser(
        "python -m pyslot.demo", description="See that limits hold, on servers of its own."
    )
    parser.add_argument("--quick", action="store_true", help="less of everything, in about ten seconds")
    quick = parser.parse_args(argv).quick
    try:
        return run(quick=quick)
    except UsageError as error:
        parser.error(str(error))


def run(*, quick: bool) -> int:
    """Run it; the status is 0 if every figure is as expected, 1 if one is off."""
    seconds, rounds = (5.0, 40) if quick else (12.0, 200)
    scenes: dict[str, Callable[[Tick], Chapter]] = {
        "workers": lambda tick: crowd.run(seconds, tick),
        "races": lambda tick: race.run(rounds, tick),
        "traffic": replay.run,
    }
    out = console()
    began = time.monotonic()
    chapters = []
    for title, scene in scenes.items():
        with progress(out, title) as tick:
            chapters.append(scene(tick))
        show(out, chapters[-1])
    return conclude(out, chapters, time.monotonic() - began)
