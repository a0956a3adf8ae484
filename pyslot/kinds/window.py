"""Windows: at most so many units per time. The twin of scripts/v1/src/window.lua."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pyslot.keys import Naming, Wire, escape_meter, wire_limit
from pyslot.kinds.checks import check_amount, check_bool, check_name, milliseconds
from pyslot.parts import Part
from pyslot.policy import Local, Policy, check_policy


@dataclass(frozen=True, slots=True)
class Window:
    """At most `limit` units of one meter in every window of `per` seconds.

    A window opens with its first charge and rolls when `per` has passed, each window by itself. Units are charged from
    an estimate when a permit starts and settled to the real figure when it finishes.
    """

    subject: str
    """Whom the limit is about, such as "team:a"."""
    meter: str
    """What it counts, such as "requests", "tokens" or "micro-dollars"."""
    limit: int | None
    """The most units in one window; None counts them and never refuses."""
    per: float | timedelta = field(default=60.0, compare=False)
    """Seconds a window lasts."""
    tag: str | None = None
    """Limits of one tag share a hash slot, so that a cluster takes them in one atomic call."""
    enforce: bool = True
    """False never refuses, but reports what it would have done."""
    on_outage: Policy | None = field(default=None, compare=False)
    """What to decide while the server is away; None: as the limiter does."""
    # Compared in place of what was given: 60 and timedelta(minutes=1) are the same rule.
    per_ms: int = field(init=False, repr=False)
    _part: tuple[Naming, Part] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        check_name("subject", self.subject)
        check_name("meter", self.meter)
        check_amount("limit", self.limit, none="no limit")
        check_bool("enforce", self.enforce)
        if self.on_outage is not None:
            check_policy(self.on_outage)
        if self.tag is not None:
            check_name("tag", self.tag)
        object.__setattr__(self, "per_ms", milliseconds("per", self.per))

    def cost(self, units: int) -> Charge:
        """This window with the units to charge to it, or to settle to. 0 is checked against the limit like the rest."""
        return Charge(self, units)

    @property
    def name(self) -> tuple[str, str, int, str | None]:
        """What makes its key: two windows of one name are one, whatever their limits."""
        return self.subject, self.meter, self.per_ms, self.tag

    def part(self, naming: Naming) -> Part:
        """Its part in calls under a naming, for one unit: made once, for one naming at a time."""
        known = self._part
        if known is not None and known[0] is naming:
            return known[1]
        per = b"%d" % self.per_ms
        key = naming.key(self.subject, self.tag, "w", escape_meter(self.meter), per.decode())
        wire = Wire.make(key, (b"w", wire_limit(self.limit, self.enforce), per), per)
        naming.local = naming.local or isinstance(self.on_outage, Local)
        part = Part(self, 1, wire, b"1")
        object.__setattr__(self, "_part", (naming, part))
        return part

    def wire(self, naming: Naming) -> Wire:
        """Its key and arguments under a naming."""
        return self.part(naming).wire

    def __str__(self) -> str:
        return f"{self.meter} of {self.subject} per {self.per_ms / 1000:g} s"


@dataclass(frozen=True, slots=True)
class Charge:
    """A window and the units a permit is charged there. Made by `Window.cost`."""

    window: Window
    units: int

    def __post_init__(self) -> None:
        check_amount(f"the cost in {self.window.meter}", self.units)

    def part(self, naming: Naming) -> Part:
        """Its part in calls under a naming."""
        return Part(self.window, self.units, self.window.part(naming).wire, b"%d" % self.units)
