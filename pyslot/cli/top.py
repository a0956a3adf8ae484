"""`pyslot top`: the limits on a server, as they stand."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pyslot.adapters.resp_tools import Servers, servers
from pyslot.cli.keyboard import keyboard
from pyslot.cli.screen import console, json_option, patience_option, prefix_option, url_argument, waiting
from pyslot.cli.watch import PAUSE, Row, Scan, look, walk
from pyslot.errors import StoreUnavailable
from pyslot.keys import Naming

SORTS: dict[str, tuple[Callable[[Row], object], bool]] = {
    "used": (lambda row: row.used, True),
    "reset": (lambda row: row.reset_ms, False),
    "subject": (lambda row: (row.named.subject, row.named.meter or ""), False),
    "limit": (lambda row: (row.named.meter or "", row.named.per_ms or 0, row.named.subject), False),
}
"""By what rows may be sorted, and whether the greatest come first."""
_SHARE = 0.1
"""Seconds of every second that may go to looking for limits that are new."""


@click.command("top")
@url_argument
@prefix_option
@patience_option
@click.option("--sort", type=click.Choice(list(SORTS)), default="used", show_default=True, help="What comes first.")
@click.option(
    "--every",
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Look once and print all; so does a pipe.")
@json_option
def command(url: str, prefix: str, patience: float, sort: str, every: float, once: bool, as_json: bool) -> None:
    """Watch the limits on a server: who is in flight, what is used.

    For slots, those held and the time until the first lease ends; for windows, the units used and the time until they
    roll. The most that a limit allows is not shown: that stands in your code, not on the server.

    On a cluster, all of it. Keys are found by SCAN in small steps, and counted by a read-only script. Press s to sort
    otherwise, q to quit.
    """
    Naming(prefix)
    out = console()
    with waiting("waiting for the server to answer"):
        opened = servers(url, patience)
        found = opened.__enter__()
    try:
        if once or as_json or not out.is_terminal:
            with waiting("walking over the keys"):
                rows = _sorted(_all(found, prefix), sort)
            if as_json:
                click.echo(json.dumps([_plain(row) for row in rows], indent=2))
            else:
                out.print(_table(rows))
        else:
            _watch(out, found, prefix, sort, every)
    finally:
        opened.__exit__(None, None, None)


def _all(found: Servers, prefix: str) -> list[Row]:
    rows = {}
    for scan, keys in walk(found.primaries, prefix):
        # A key may come twice while the server's table grows.
        rows.update({row.key: row for row in look(scan.node, keys, prefix, cluster=found.cluster)})
    return [row for row in rows.values() if row.used]


class View:
    """What is known while we watch: keys found so far, looked at anew every time, and the walk that finds more."""

    def __init__(self, found: Servers, prefix: str) -> None:
        self._found = found
        self._prefix = prefix
        self._keys: dict[str, set[bytes]] = {node.name: set() for node in found.primaries}
        self._walk: list[Scan] = []
        self.round = 0
        """Walks over all keys that are complete."""
        self.part = 0.0
        """Of the walk under way, from 0 to 1."""

    def refresh(self, seconds: float) -> list[Row]:
        """Walk on for so long, then look at all limits that are known."""
        end = time.monotonic() + seconds
        while True:
            self._step()
            if time.monotonic() > end or self.part == 1.0:
                break
            time.sleep(PAUSE)
        rows = []
        for node in self._found.primaries:
            known = self._keys[node.name]
            some = look(node, known, self._prefix, cluster=self._found.cluster)
            rows += [row for row in some if row.used]
            known.intersection_update([row.key for row in rows])  # whoever is in use again is found by the walk
        return rows

    def _step(self) -> None:
        if not self._walk:
            self._walk = [Scan(node, self._prefix) for node in self._found.primaries]
        under_way = next(scan for scan in self._walk if not scan.done)
        self._keys[under_way.node.name].update(under_way.next())
        parts = [1.0 if scan.done else min(0.99, scan.seen / (scan.total + 1)) for scan in self._walk]
        self.part = sum(parts) / len(parts)
        if all(scan.done for scan in self._walk):
            self.part = 1.0
            self.round += 1
            self._walk = []


def _watch(out: Console, found: Servers, prefix: str, sort: str, every: float) -> None:
    view = View(found, prefix)
    orders = list(SORTS)
    trouble = ""
    rows: list[Row] = []
    with keyboard() as press, Live(console=out, screen=True, auto_refresh=False) as live:
        while True:
            try:
                rows, trouble = view.refresh(every * _SHARE), ""
            except StoreUnavailable as error:
                trouble = f"no answer, trying again: {error}"
            end = time.monotonic() + every
            while (left := end - time.monotonic()) > 0:
                live.update(_screen(out, view, _sorted(rows, sort), sort, trouble), refresh=True)
                key = press(left)
                if key == "q":
                    return
                if key == "s":
                    sort = orders[(orders.index(sort) + 1) % len(orders)]


def _screen(out: Console, view: View, rows: Sequence[Row], sort: str, trouble: str) -> RenderableType:
    room = max(out.height - 5, 1)
    more = f", {len(rows) - room} more below" if len(rows) > room else ""
    walked = "all keys seen" if view.round else f"{view.part:.0%} of the keys seen"
    head = Text(f"{len(rows)} limits in use{more} · {walked} · by {sort} · s sorts, q quits", no_wrap=True)
    if trouble:
        head = Text(trouble, style="bold red", no_wrap=True, overflow="ellipsis")
    return Group(head, _table(rows[:room]))


def _sorted(rows: Iterable[Row], sort: str) -> list[Row]:
    by, descending = SORTS[sort]
    return sorted(sorted(rows, key=lambda row: row.key), key=by, reverse=descending)  # type: ignore[arg-type]


def _table(rows: Iterable[Row]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("subject", overflow="ellipsis", no_wrap=True, ratio=1)
    table.add_column("limit", overflow="ellipsis", no_wrap=True)
    table.add_column("used", justify="right", no_wrap=True)
    table.add_column("ends or rolls in", justify="right", no_wrap=True)
    for row in rows:
        named = row.named
        subject = f"{named.subject[:12]}… (hashed)" if named.hashed else named.subject
        if named.tag is not None:
            subject += f" in {named.tag}"
        what = "slots" if named.per_ms is None else f"{named.meter} per {span(named.per_ms)}"
        table.add_row(Text(subject), Text(what), f"{row.used:,}", span(row.reset_ms))
    return table


def _plain(row: Row) -> dict[str, object]:
    named = row.named
    return {
        "key": row.key.decode("utf-8", "backslashreplace"),
        "kind": "slots" if named.per_ms is None else "window",
        "subject": named.subject,
        "tag": named.tag,
        "hashed": named.hashed,
        "meter": named.meter,
        "per": None if named.per_ms is None else named.per_ms / 1000,
        "used": row.used,
        "reset_after": row.reset_ms / 1000,
    }


def span(milliseconds: int) -> str:
    """A time as people say it: 0.25 s, 59 s, 12 min, 5 h, 3 d."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min")):
        if milliseconds >= size:
            return f"{milliseconds / size:.3g} {unit}"
    return f"{milliseconds / 1000:.3g} s"
