"""`pyslot replay`: what limits would have done to recorded traffic."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from pyslot.adapters.base import open_store
from pyslot.cli.screen import console, json_option, progress, waiting
from pyslot.errors import StoreUnavailable, UsageError
from pyslot.kinds import Asked, Limit, Slots, Window
from pyslot.limiter import Limiter
from pyslot.replay.engine import Driven, Plan, Start, play
from pyslot.replay.summary import REQUESTS, SLOTS, TOKENS, Summary
from pyslot.replay.trace import ROLES, Request, read

_FORMATS = (".svg", ".png")
_LIMIT = click.IntRange(min=0)


@click.command("replay")
@click.argument("trace", metavar="TRACE", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--slots", type=_LIMIT, metavar="N", help="At most N in flight.")
@click.option("--rpm", type=_LIMIT, metavar="N", help="At most N requests a minute.")
@click.option("--tpm", type=_LIMIT, metavar="N", help="At most N tokens a minute.")
@click.option("--by", metavar="COLUMN", help="Give every value of this column limits of its own.")
@click.option("--columns", metavar="ROLE=NAME,…", default="", help=f"Which column is what: {', '.join(ROLES)}.")
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=30.0,
    show_default=True,
    metavar="N",
    help="Tokens a second: how long a slot is held, where no column says it.",
)
@click.option(
    "--max-tokens",
    type=_LIMIT,
    default=1000,
    show_default=True,
    metavar="N",
    help="Tokens to reserve for an answer, on top of the prompt.",
)
@click.option("--url", default="memory://", show_default=True, help="Where to count.")
@click.option("--plot", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw it: .svg or .png.")
@json_option
def command(
    trace: Path,
    slots: int | None,
    rpm: int | None,
    tpm: int | None,
    by: str | None,
    columns: str,
    speed: float,
    max_tokens: int,
    url: str,
    plot: Path | None,
    as_json: bool,
) -> None:
    """See what limits would have done to recorded traffic.

    TRACE is a CSV file with a header. Well-known names of columns are found by themselves, such as TIMESTAMP,
    ContextTokens and GeneratedTokens; else say --columns time=…,prompt=…,answer=…,hold=… (hold in seconds).

    A request reserves its prompt and --max-tokens, holds its slot for as long as its answer takes, and then settles to
    the tokens it really had. One that is refused is gone: nobody tries again. Time is the trace's: an hour takes
    seconds.
    """
    limits = {name: limit for name, limit in ((SLOTS, slots), (REQUESTS, rpm), (TOKENS, tpm)) if limit is not None}
    if not limits:
        raise click.UsageError("which limits? Give --slots, --rpm or --tpm", click.get_current_context())
    if plot is not None:
        _check_plot(plot)
    with waiting(f"reading {trace}"):
        traffic = read(trace, _chosen(columns), by=by, speed=speed)
    out = console()
    began = time.perf_counter()
    summary, subjects = _run(out, traffic, limits, by, max_tokens, url)
    seconds = time.perf_counter() - began
    if as_json:
        click.echo(json.dumps(summary.plain(), indent=2))
    else:
        _show(out, summary, subjects, seconds)
    if plot is not None:
        with waiting(f"drawing {plot}"):
            from pyslot.replay.plot import plot as draw  # noqa: PLC0415  # an extra, and slow to load

            draw(summary, subjects, plot)
        if not as_json:
            out.print(f"Drawn into {plot}.", soft_wrap=True)


def _run(
    out: Console, traffic: list[Request], limits: Mapping[str, int], by: str | None, max_tokens: int, url: str
) -> tuple[Summary, int]:
    store = Driven(open_store(url, 1.0))
    summary = Summary(limits, traffic[0].at)
    # Nothing renews a slot in a time that is not the clock's, so a lease outlasts every request.
    lease = max(request.hold_ms for request in traffic) / 1000 + 60
    of: dict[str, list[Limit]] = {}

    def plan(request: Request) -> Plan:
        subject = f"{by}:{request.subject}" if by else "all"
        if subject not in of:
            of[subject] = _limits(subject, limits, lease)
        estimate, real = request.prompt + max_tokens, request.prompt + request.answer
        asked: list[Asked] = []
        settled = []
        for limit in of[subject]:
            if isinstance(limit, Window) and limit.meter == TOKENS:
                asked.append(limit.cost(estimate))
                settled.append(limit.cost(real))
            else:
                asked.append(limit)
        return Plan(asked, request.hold_ms, settled)

    with Limiter(store, prefix=f"pyslot-replay-{secrets.token_hex(4)}") as limiter, progress(out, "replaying") as tick:
        try:
            for event in play(store, limiter, traffic, plan):
                summary.take(event)
                if isinstance(event, Start):
                    summary.reserved += (event.request.prompt + max_tokens) if event.decision else 0
                    if event.n % 64 == 0:
                        tick(event.n / len(traffic))
        finally:
            with suppress(StoreUnavailable):  # then that is the error to be told, or it is all in vain anyway
                for some in of.values():
                    limiter.reset(*some)
    store.close()
    return summary, len(of)


def _limits(subject: str, limits: Mapping[str, int], lease: float) -> list[Limit]:
    made: list[Limit] = []
    for name, limit in limits.items():
        made.append(Slots(subject, limit, lease=lease) if name == SLOTS else Window(subject, name, limit))
    return made


def _chosen(columns: str) -> dict[str, str]:
    chosen = {}
    for part in filter(None, columns.split(",")):
        role, equals, name = part.partition("=")
        if role not in ROLES or not equals:
            raise UsageError(f"--columns takes {', '.join(f'{each}=NAME' for each in ROLES)}, not {part!r}")
        chosen[role] = name
    return chosen


def _check_plot(path: Path) -> None:
    """Before all the work, not after."""
    if path.suffix.lower() not in _FORMATS:
        raise UsageError(f"--plot draws {' or '.join(_FORMATS)}, not {path.name!r}")
    if not path.parent.is_dir():
        raise UsageError(f"there is no directory {str(path.parent)!r} for the plot")
    try:
        import matplotlib as _  # noqa: F401, ICN001, PLC0415  # an extra
    except ModuleNotFoundError:
        raise UsageError("--plot needs the package 'matplotlib': pip install 'pyslot-limits[plot]'") from None


def _show(out: Console, summary: Summary, subjects: int, seconds: float) -> None:
    asked, refused = summary.asked, summary.refused.total()
    minutes = (summary.ended - summary.began) / 60_000
    out.print(
        f"{asked:,} requests in {minutes:,.1f} minutes"
        f"{f', of {subjects:,} subjects' if subjects > 1 else ''}: {summary.admitted:,} admitted, "
        f"{refused:,} refused ({refused / asked:.1%})."
    )
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("limit", no_wrap=True)
    for head in ("at most", "most seen", "refused", "it alone"):
        table.add_column(head, justify="right", no_wrap=True)
    names = {SLOTS: "slots in flight", REQUESTS: "requests a minute", TOKENS: "tokens a minute"}
    for name, limit in summary.limits.items():
        by_it, alone = summary.refused_by(name)
        table.add_row(names[name], f"{limit:,}", f"{summary.peaks.get(name, 0):,}", f"{by_it:,}", f"{alone:,}")
    out.print(table)
    if summary.never:
        out.print(f"{summary.never:,} of the refused could never be granted: each asks for more than a limit.")
    if TOKENS in summary.limits and summary.used:
        times = summary.reserved / summary.used
        out.print(
            f"Tokens: {summary.used:,} used, {times:.2f} times as many reserved; {summary.wanted:,} wanted in all."
        )
    out.print(f"Replayed in {seconds:.1f} s.")
