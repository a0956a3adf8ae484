"""What a bar is: a ratio within one run that must hold."""

from __future__ import annotations

from typing import NamedTuple

from bench.beside import Worker
from bench.rounds import Ratio
from tests.servers.process import Server

MUCH = 10**9


class Bar(NamedTuple):
    name: str
    figure: str
    wanted: str
    reached: bool
    floor: str = ""
    """What the same takes without the library, where that was measured too."""


class Run(NamedTuple):
    """How much is run, and on what."""

    server: Server
    litellm: Worker | None
    rounds: int
    seconds: float
    """How long each load lasts in each round."""


def at_most(name: str, found: Ratio, most: float, floor: Ratio | None = None) -> Bar:
    return Bar(name, str(found), f"at most {most:g}", found.value <= most, str(floor) if floor else "")


def at_least(name: str, found: Ratio, least: float, floor: Ratio | None = None) -> Bar:
    return Bar(name, str(found), f"at least {least:g}", found.value >= least, str(floor) if floor else "")
