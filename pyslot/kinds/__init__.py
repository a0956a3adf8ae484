"""The kinds of limit: one file each, the twin of a part in scripts/v1/src."""

from __future__ import annotations

from typing import TypeAlias

from pyslot.kinds.slots import Slots
from pyslot.kinds.window import Charge, Window

Limit: TypeAlias = Slots | Window
Asked: TypeAlias = Slots | Window | Charge
"""What callers may ask for: a limit, or a window with the units to charge."""

__all__ = ["Asked", "Charge", "Limit", "Slots", "Window"]
