"""One limit's part in a call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyslot.keys import Wire, hashed

if TYPE_CHECKING:
    from pyslot.kinds import Limit


class Part(NamedTuple):
    """A limit, what is asked of it, and how that travels."""

    limit: Limit
    units: int
    wire: Wire
    figure: bytes | None
    """The units as they travel; None for slots, which are one by one."""

    def __str__(self) -> str:
        """The limit in words. Where its subject is stored as a hash it is a secret, and shown as that hash."""
        subject = self.limit.subject
        secret = hashed(subject)
        text = str(self.limit)
        return text.replace(subject, f"#{secret[:8]}") if secret.encode() in self.wire.key else text
