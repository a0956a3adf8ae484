"""Runs scenes on servers and clusters, every contestant in every round, and keeps each round's figures."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from typing import Any

from bench import beside
from bench.about import about
from bench.beside import Worker
from bench.places import Place, clustered, standalone
from bench.rounds import compete
from bench.scene import Run, Scene, Size, Where
from bench.scenes import CURVES, SCENES

Results = dict[str, Any]


def run(size: Size) -> Results:
    """Everything, for the report."""
    warnings.simplefilter("ignore")  # peers leave connections to the collector; nothing of ours goes silent
    gc.freeze()
    found: Results = {
        "about": about(),
        "size": size._asdict(),
        "places": {},
        "scenes": {scene.name: {} for scene in SCENES},
        "curves": {curves.name: {} for curves in CURVES},
    }
    for where, place, litellm in _places(size):
        if where is not Where.HERE:
            found["places"][place.name] = place.version()
        for scene in SCENES:
            if where in scene.where:
                print(f"{place.name}: {scene.name}", flush=True)
                found["scenes"][scene.name][place.name] = asyncio.run(_raced(scene, place, litellm, size))
        if where is Where.SERVER:
            for curves in CURVES:
                print(f"{place.name}: {curves.name}", flush=True)
                place.fresh()
                found["curves"][curves.name][place.name] = curves.measure(place, litellm, size.rounds)
    return found


def _places(size: Size) -> Iterator[tuple[Where, Place, Worker | None]]:
    yield Where.HERE, Place("this process", (), cluster=False), None
    for name in size.servers:
        with ExitStack() as stack:
            place = stack.enter_context(standalone(name))
            yield Where.SERVER, place, stack.enter_context(beside.worker(place.masters[0].port))
    for name in size.clusters:
        with clustered(name) as place:
            yield Where.CLUSTER, place, None


async def _raced(scene: Scene, place: Place, litellm: Worker | None, size: Size) -> dict[str, list[dict[str, Any]]]:
    place.fresh()
    async with AsyncExitStack() as stack:
        longer = size._replace(seconds=scene.longer * size.seconds)
        contestants = await scene.contestants(Run(place, litellm, longer, stack))
        spent = place.spent if place.masters else None
        loads = await compete(contestants, rounds=size.rounds, spent=spent)
    return {who: [load._asdict() for load in rounds] for who, rounds in loads.items()}
