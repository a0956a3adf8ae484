"""The documentation's code blocks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = [
    path
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "SECURITY.md",
        *sorted((ROOT / "docs").glob("*.md")),
    )
    if path.exists()
]
_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    page: str
    line: int
    """Of its first line of text."""
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """All blocks of a page, in order."""
    whole = page.read_text("utf-8")
    for found in _FENCE.finditer(whole):
        line = whole.count("\n", 0, found.start("text")) + 1
        yield Block(page.name, line, found["language"], found["text"])
