"""What to do with a request while the server can't be asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pyslot.errors import UsageError


@dataclass(frozen=True, slots=True)
class Local:
    """Decide in this process, within its share of each limit: `max(1, floor(limit * share))`.

    What others were last seen to hold counts as well, until one lease, or the window, has passed.
    """

    share: float
    """This process's part of every limit, above 0 and at most 1; usually 1 / replicas."""

    def __post_init__(self) -> None:
        if type(self.share) not in (int, float) or not 0 < self.share <= 1:
            raise UsageError(f"share must be above 0 and at most 1, such as 1/replicas, not {self.share!r}")


Policy: TypeAlias = Literal["raise", "closed", "open"] | Local
"""`raise` StoreUnavailable, refuse (`closed`), admit (`open`), or decide locally."""


def check_policy(policy: object) -> None:
    if not isinstance(policy, Local) and policy not in ("raise", "closed", "open"):
        raise UsageError(f"on_outage must be 'raise', 'closed', 'open' or Local(share=...), not {policy!r}")
