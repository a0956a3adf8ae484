"""What scripts/README.md says, in a form that can be checked."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import NamedTuple

SCRIPTS_FOLDER = Path(__file__).parents[2] / "scripts"
TEXT = (SCRIPTS_FOLDER / "README.md").read_text("utf-8")


class Example(NamedTuple):
    """One command of a session, and the reply that is shown."""

    command: list[str]
    reply: str


class Use(NamedTuple):
    """A script's row in the table of commands."""

    commands: set[str]
    most: dict[str, int]
    """Kind of key (`s` or `w`) -> the most commands that a call runs for one of them."""
    usual: dict[str, int]


def sessions() -> list[list[Example]]:
    """Every block of commands and replies."""
    blocks = re.findall(r"^```redis\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    return [
        [
            Example(shlex.split(command), reply.replace("| ", "").strip())
            for command, reply in re.findall(r"^> (.*)\n((?:[^>].*\n)*)", block, re.MULTILINE)
        ]
        for block in blocks
    ]


def rows(header: str) -> list[list[str]]:
    """The cells of the table whose header line starts so."""
    _, _, rest = TEXT.partition(f"\n| {header}")
    _, _, body = rest.partition("|---|\n")
    lines = body.partition("\n\n")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def uses() -> dict[str, Use]:
    found = {}
    for name, commands, *counts in rows("script | commands"):
        numbers = {kind: re.findall(r"\d+", text) for kind, text in zip("sw", counts, strict=True) if text}
        most, usual = ({kind: int(pair[i]) for kind, pair in numbers.items()} for i in (0, 1))
        found[name.strip("`")] = Use(set(commands.split()), most, usual)
    return found
