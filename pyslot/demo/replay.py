"""Real traffic against the limits of keys and teams: do the figures add up, by books that pyslot has no part in?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pyslot import Limiter, Slots, Window
from pyslot.adapters import embedded
from pyslot.demo.books import Account, Gauge
from pyslot.demo.figures import Chapter, Figure, Tick
from pyslot.demo.traffic import KEYS, Request, requests
from pyslot.kinds import Asked, Limit
from pyslot.replay.engine import Driven, End, Plan, Start, play

SPEED = 30
"""Tokens a second of the imagined model: how long a request holds its slots."""
LONGEST = 2_000
"""Tokens an answer may have. They are reserved along with the prompt, for its real length is not known before."""


def _limits(subject: str, slots: int | None, requests: int | None, tokens: int | None) -> tuple[Slots, Window, Window]:
    # The lease outlasts every request: nothing renews it in a time that is not the clock's.
    return Slots(subject, slots, lease=600), Window(subject, "requests", requests), Window(subject, "tokens", tokens)


OF_KEY = {key: _limits(f"key:{key}", 5, 65, 130_000) for key in dict.fromkeys(KEYS)}
OF_TEAM = {team: _limits(f"team:{team}", 10, 145, 260_000) for team in dict.fromkeys(key[0] for key in KEYS)}
TOTAL = Window("all", "tokens", limit=None, per=3600)
"""Refuses nothing, and counts all that was used."""


def run(tick: Tick) -> Chapter:
    traffic = requests()
    minutes = (traffic[-1].at - traffic[0].at) / 60_000
    return Chapter(
        "Real traffic",
        f"{len(traffic):,} requests that a code-completion service got in {minutes:.0f} minutes of 2023 (Azure Public "
        f"Dataset, CC BY 4.0) are replayed in fast motion, as if from {len(OF_KEY)} keys of {len(OF_TEAM)} teams. Keys "
        f"and teams are limited in requests in flight, requests a minute and tokens a minute. A request reserves its "
        f"prompt and {LONGEST:,} tokens for the answer, holds its slots while that is written at {SPEED} tokens a "
        f"second, and then settles to the tokens it really had. The demo keeps books of its own to compare with.",
        judge(Replay().run(traffic, tick)),
    )


def judge(seen: Seen) -> list[Figure]:
    figures = [
        Figure(
            "requests answered",
            f"{seen.asked:,} in all",
            f"{seen.admitted:,} admitted + {seen.refused:,} refused",
            seen.admitted + seen.refused == seen.asked > 0,
        )
    ]
    for whose, limits in (("key", OF_KEY), ("team", OF_TEAM)):
        figures += [_full_figure(whose, same, seen) for same in zip(*limits.values(), strict=True)]
    return [
        *figures,
        _all_figure("admitted or refused, and by whom, as the books say", seen.answers_right, seen.answers),
        _all_figure("looks at what is used, equal to the books", seen.looks_right, seen.looks),
        Figure(
            "tokens counted by the server in all",
            f"{seen.used:,}, as the trace has them",
            f"{seen.counted:,}",
            seen.used == seen.counted > 0,
        ),
        Figure("decisions a second, one by one", "(depends on the machine)", f"{seen.asked / seen.seconds:,.0f}"),
    ]


def _full_figure(whose: str, same: Sequence[Limit], seen: Seen) -> Figure:
    """How full the limits of one kind got, and how many requests they refused."""
    most = same[0].limit or 0
    peak = max(seen.peaks.get(limit, 0) for limit in same)
    refused = sum(seen.refused_by[limit] for limit in same)
    what = f"{same[0].meter} a minute" if isinstance(same[0], Window) else "requests in flight"
    return Figure(
        f"{what} of a {whose}",
        f"at most {most:,}, and some refused",
        f"{peak:,} at most, {refused:,} requests refused",
        0 < peak <= most and refused > 0,
    )


def _all_figure(what: str, right: int, number: int) -> Figure:
    return Figure(what, f"all {number:,}", f"{right:,}", right == number > 0)


@dataclass(slots=True)
class Seen:
    """What came of it."""

    asked: int = 0
    admitted: int = 0
    refused: int = 0
    refused_by: Counter[Limit] = field(default_factory=Counter)
    peaks: dict[Limit, int] = field(default_factory=dict)
    """The most each limit ever held, by the books."""
    answers: int = 0
    answers_right: int = 0
    """Decisions, and ends of requests, that were as the books say they must be."""
    looks: int = 0
    looks_right: int = 0
    used: int = 0
    """Tokens of the admitted requests, by the trace."""
    counted: int = 0
    """The same by the server."""
    seconds: float = 0.0
    """Spent on decisions."""


class Replay:
    """One run: the limiter, and the books beside it."""

    def __init__(self) -> None:
        self._store = Driven(embedded.open_sync("embedded://", deadline=1.0))
        self._limiter = Limiter(self._store)
        self._books = {limit: Gauge() if isinstance(limit, Slots) else Account(limit.per_ms) for limit in _all()}
        self.seen = Seen()

    def run(self, traffic: Sequence[Request], tick: Tick) -> Seen:
        seen = self.seen
        with self._limiter:
            for event in play(self._store, self._limiter, traffic, _plan):
                if isinstance(event, Start):
                    self._start(event)
                    tick(event.n / len(traffic))
                else:
                    self._end(event)
            seen.counted = self._limiter.peek(TOTAL)[0].used
            seen.peaks = {limit: book.peak for limit, book in self._books.items()}
        return seen

    def _start(self, event: Start[Request]) -> None:
        seen, request, decision = self.seen, event.request, event.decision
        limits = _limits_of(request)
        units = _units(limits, request.context + LONGEST)
        seen.seconds += event.seconds
        full = {x for x in limits if x.limit is not None and self._books[x].used(request.at) + units[x] > x.limit}
        seen.asked += 1
        seen.admitted += bool(decision)
        seen.refused += not decision
        seen.refused_by.update(decision.refused_by)
        self._answer(set(decision.refused_by) == full and bool(decision) is not bool(full))
        if decision:
            seen.used += request.context + request.generated
            for limit, figure in units.items():
                self._books[limit].admit(request.at, event.n, figure)
        self._look(limits, request.at)

    def _end(self, event: End[Request]) -> None:
        limits = _limits_of(event.request)
        units = _units(limits, event.request.context + event.request.generated)
        held = [self._books[limit].finish(event.at, event.n, figure) for limit, figure in units.items()]
        self._answer(event.outcome.released and event.outcome.late is not all(held))
        self._look(limits, event.at)

    def _answer(self, right: bool) -> None:
        self.seen.answers += 1
        self.seen.answers_right += right

    def _look(self, limits: Sequence[Limit], at: int) -> None:
        for status in self._limiter.peek(*limits):
            self.seen.looks += 1
            self.seen.looks_right += status.used == self._books[status.limit].used(at)


def _plan(request: Request) -> Plan:
    limits = _limits_of(request)
    real = _units(limits, request.context + request.generated)
    return Plan(
        _asked(_units(limits, request.context + LONGEST)),
        round(request.generated / SPEED * 1000),
        [limit.cost(figure) for limit, figure in real.items() if isinstance(limit, Window)],
    )


def _all() -> list[Limit]:
    return [*(limit for limits in (*OF_KEY.values(), *OF_TEAM.values()) for limit in limits), TOTAL]


def _limits_of(request: Request) -> list[Limit]:
    return [*OF_KEY[request.key], *OF_TEAM[request.team], TOTAL]


def _units(limits: Iterable[Limit], tokens: int) -> dict[Limit, int]:
    return {limit: tokens if isinstance(limit, Window) and limit.meter == "tokens" else 1 for limit in limits}


def _asked(units: dict[Limit, int]) -> list[Asked]:
    return [limit.cost(figure) if isinstance(limit, Window) else limit for limit, figure in units.items()]
