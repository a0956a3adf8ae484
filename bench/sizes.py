"""How much each run measures."""

from __future__ import annotations

from bench.places import CLUSTERED, STANDALONE
from bench.scene import Size

SIZES = {
    "smoke": Size(("valkey-9.1",), ("valkey-9.1",), rounds=1, seconds=0.1),
    "last": Size(("valkey-9.1", "redis-7.0"), ("valkey-9.1",), rounds=5, seconds=0.18),
    "full": Size(STANDALONE[::-1], CLUSTERED[::-1], rounds=7, seconds=0.22),
}
"""A run's name -> its size. The newest server comes first: it is the headline's."""
