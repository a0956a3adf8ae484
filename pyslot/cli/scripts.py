"""`pyslot scripts`: the contract that other languages call, as files and on a server."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click
from rich.table import Table
from rich.text import Text

from pyslot.adapters.base import open_store
from pyslot.adapters.resp_tools import Node, servers
from pyslot.calls import SCRIPTS
from pyslot.cli.screen import console, patience_option, prefix_option, url_argument, waiting
from pyslot.cli.verify import verify as run_all
from pyslot.errors import StoreError
from pyslot.loader import LAYOUT


@click.group("scripts")
def command() -> None:
    """List, show, export or verify the Lua scripts that all limits are kept by."""


@command.command("list")
def list_() -> None:
    """Name every script, with the SHA1 that EVALSHA takes."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("script", "SHA1", "writes"):
        table.add_column(name, no_wrap=True)
    for script in SCRIPTS.values():
        table.add_row(script.name, script.sha.decode(), "no" if script.read_only else "yes")
    console().print(table)


@command.command()
@click.argument("name", type=click.Choice(list(SCRIPTS)), metavar="NAME")
def show(name: str) -> None:
    """Print the text of a script, as it is sent."""
    click.echo(SCRIPTS[name].text, nl=False)


@command.command()
@click.argument("directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
def export(directory: Path) -> None:
    """Write the scripts, their manifest and the description of their contract into a directory.

    Nothing that is there is overwritten, unless it is the same.
    """
    source = files("pyslot").joinpath("scripts")
    texts = {f"{LAYOUT}/{name}.lua": script.text for name, script in SCRIPTS.items()}
    texts |= {name: source.joinpath(name).read_bytes() for name in ("manifest.json", "README.md")}
    if taken := [name for name, text in texts.items() if _other(directory / name, text)]:
        raise click.ClickException(f"{directory / taken[0]} is there, with another text: choose another directory")
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text)
    click.echo(f"{len(texts)} files in {directory}")


def _other(path: Path, text: bytes) -> bool:
    return path.exists() and path.read_bytes() != text


@command.command()
@url_argument
@prefix_option
@patience_option
def verify(url: str, prefix: str, patience: float) -> int:
    """Run every script on a server, and compare its replies with the reference model's.

    Over keys of its own under the prefix, which are gone afterwards. Also says whether the server knew the script
    before. The exit status is 0 if all replies are right, else 1.
    """
    with waiting("waiting for the server to answer"), servers(url, patience) as found:
        known = _known(found.primaries)
        store = open_store(found.url, patience)
        try:
            verdicts = list(run_all(store, prefix))
        finally:
            store.close()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("script", "replies", "was loaded"):
        table.add_column(name)
    for name, fault in verdicts:
        table.add_row(name, Text(fault, "bold red") if fault else Text("right", "green"), known[name])
    console().print(table)
    return 1 if any(verdict.fault for verdict in verdicts) else 0


def _known(nodes: list[Node]) -> dict[str, str]:
    """How many of the servers know each script; a server may well not tell."""
    try:
        answers = [node.ask("script_exists", *(script.sha for script in SCRIPTS.values())) for node in nodes]
    except StoreError:
        return dict.fromkeys(SCRIPTS, "not told")
    counts = {name: sum(map(bool, answer)) for name, answer in zip(SCRIPTS, zip(*answers, strict=True), strict=True)}
    whole = len(nodes)
    return {
        name: ("yes" if number else "no") if whole == 1 else f"by {number} of {whole}"
        for name, number in counts.items()
    }
