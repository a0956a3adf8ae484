"""Run the scenes and print what was found; the exit code says whether all that must hold did."""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.chaos.books import Findings
from tests.chaos.scenes import SCENES, play
from tests.chaos.worker import DEADLINE

PARTS = {"durable": 0.2, "forgetful": 0.25, "network": 0.3, "cluster": 0.25}
"""Each scene's part of the time."""


def report(name: str, found: Findings) -> bool:
    faults = ", ".join(f"{count} {fault}" for fault, count in sorted(found.faults.items()))
    asked = f"{found.permits:,} granted, {found.refused:,} refused, {found.failed:,} failed"
    lost = (
        f"{found.forgotten_over:.2f} s in all, {found.forgotten_longest:.2f} s at longest, {found.forgotten_most} more"
    )
    rows = {
        "faults": faults,
        "over the limit, leases honoured": found.over,
        "over the limit, state lost by the server": lost,
        "permits that lost their slots": found.lost,
        "slots left one lease after the end": found.slots_left,
        "units lost or charged twice": found.charge_errors,
        "longest answer": f"{found.slowest:.2f} s, deadline {DEADLINE} s; without a processor {found.stall:.2f} s",
    }
    print(f"{name}: {found.operations:,} operations ({asked})")
    for what, value in rows.items():
        print(f"  {what:<44}  {value}", flush=True)
    return not (found.over or found.slots_left or found.charge_errors)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--scene", choices=SCENES, action="append")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else time.time_ns() % 10**6
    random.seed(seed)
    print(f"seed {seed}", flush=True)
    scenes = given.scene or list(SCENES)
    whole = sum(PARTS[name] for name in scenes)
    good, operations = True, 0
    for name in scenes:
        with SCENES[name]() as stage:
            found = play(stage, given.seconds * PARTS[name] / whole)
        good = report(name, found) and good
        operations += found.operations
    print(f"{operations:,} operations in all: {'all held' if good else 'NOT ALL HELD'}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
