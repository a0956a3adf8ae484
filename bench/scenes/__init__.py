"""All scenes, in the order in which the report shows them: the headline first."""

from __future__ import annotations

from bench.scene import Curves, Scene
from bench.scenes import (
    cross_slot,
    gateway,
    growth,
    hot,
    many,
    memory_store,
    one_caller,
    refusals,
    server_memory,
    settle,
    waiting,
    window,
)

SCENES: tuple[Scene, ...] = (
    gateway.SCENE,
    hot.SCENE,
    many.SCENE,
    window.SCENE,
    refusals.SCENE,
    settle.SCENE,
    waiting.SCENE,
    cross_slot.SCENE,
    one_caller.GATEWAY,
    one_caller.SLOT,
    one_caller.COUNTED,
    memory_store.SCENE,
)
CURVES: tuple[Curves, ...] = (growth.CURVES, server_memory.CURVES)
