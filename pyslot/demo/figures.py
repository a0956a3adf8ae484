"""What the demo finds: figures, each with what was expected of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Figure:
    """One number that was looked at."""

    what: str
    expected: str
    seen: str
    ok: bool | None = None
    """None where nothing in particular was expected."""


@dataclass(frozen=True, slots=True)
class Chapter:
    """One part of the demo: what was done, in a sentence or two, and what came of it."""

    title: str
    story: str
    figures: Sequence[Figure]


Tick: TypeAlias = Callable[[float], None]
"""Moves a progress bar to a part of the whole, from 0 to 1."""
