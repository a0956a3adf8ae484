"""Slots: at most so many in flight at once. The twin of scripts/v1/src/slots.lua."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from pyslot.keys import Naming, Wire, wire_limit
from pyslot.kinds.checks import check_amount, check_bool, check_name, milliseconds
from pyslot.parts import Part
from pyslot.policy import Local, Policy, check_policy


@dataclass(frozen=True, slots=True)
class Slots:
    """At most `limit` permits of one subject at a time.

    A slot is held until its permit finishes. It lives for one `lease` and is renewed while the permit is held, so the
    slots of a process that died come back by themselves. The server keeps a sorted set: permit id -> end of its lease.
    """

    subject: str
    """Whom the limit is about, such as "key:sk-1"."""
    limit: int | None
    """The most permits held at once; None counts them and never refuses."""
    lease: float | timedelta = field(default=60.0, compare=False)
    """Seconds until a holder that is no longer heard of loses its slot."""
    max_hold: float | timedelta = field(default=3600.0, compare=False)
    """Seconds after which a slot is no longer renewed, whoever holds it."""
    tag: str | None = None
    """Limits of one tag share a hash slot, so that a cluster takes them in one atomic call."""
    enforce: bool = True
    """False never refuses, but reports what it would have done."""
    on_outage: Policy | None = field(default=None, compare=False)
    """What to decide while the server is away; None: as the limiter does."""
    # Compared in place of what was given: 60 and timedelta(minutes=1) are the same rule.
    lease_ms: int = field(init=False, repr=False)
    max_hold_seconds: float = field(init=False, repr=False)
    _part: tuple[Naming, Part] | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        check_name("subject", self.subject)
        check_amount("limit", self.limit, none="no limit")
        check_bool("enforce", self.enforce)
        if self.on_outage is not None:
            check_policy(self.on_outage)
        if self.tag is not None:
            check_name("tag", self.tag)
        object.__setattr__(self, "lease_ms", milliseconds("lease", self.lease))
        object.__setattr__(self, "max_hold_seconds", milliseconds("max_hold", self.max_hold) / 1000)

    def part(self, naming: Naming) -> Part:
        """Its part in calls under a naming: made once, for one naming at a time."""
        known = self._part
        if known is not None and known[0] is naming:
            return known[1]
        key = naming.key(self.subject, self.tag, "s")
        wire = Wire.make(key, (b"s", wire_limit(self.limit, self.enforce), b"%d" % self.lease_ms), b"s")
        naming.local = naming.local or isinstance(self.on_outage, Local)
        part = Part(self, 1, wire, None)
        object.__setattr__(self, "_part", (naming, part))
        return part

    def wire(self, naming: Naming) -> Wire:
        """Its key and arguments under a naming."""
        return self.part(naming).wire

    def __str__(self) -> str:
        return f"slots of {self.subject}"
