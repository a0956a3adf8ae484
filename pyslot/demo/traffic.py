"""The real traffic that comes with the demo; whose it is stands in azure-llm-code-2023-excerpt.md."""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import NamedTuple

from pyslot.replay.trace import milliseconds

_FILE = "azure-llm-code-2023-excerpt.csv"
KEYS = ("a1", "b1", "a1", "a2", "b2", "a1", "b1", "a3", "a2", "b1", "a1", "b3")
"""The trace does not say who asked: these keys do, in turn. Their first letter is their team."""


class Request(NamedTuple):
    """One invocation of the model."""

    at: int
    """When it arrived: ms since 1970."""
    key: str
    team: str
    context: int
    """Tokens in the prompt, known when the request arrives."""
    generated: int
    """Tokens in the answer, known when it is complete."""


def requests() -> list[Request]:
    """All of it, in order of arrival."""
    with files("pyslot.demo").joinpath(_FILE).open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    found = []
    for n, row in enumerate(rows):
        key = KEYS[n % len(KEYS)]
        tokens = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        found.append(Request(milliseconds(row["TIMESTAMP"]), key, key[0], *tokens))
    return found
