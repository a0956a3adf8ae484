"""What must be made anew in a forked child: threads don't survive a fork, and locks may be held for ever."""

from __future__ import annotations

import logging
import os
from typing import Protocol
from weakref import WeakSet

log = logging.getLogger("pyslot")


class Forkable(Protocol):
    def after_fork(self) -> None:
        """Called in the child, before anything else runs there."""


_watched: WeakSet[Forkable] = WeakSet()


def watch(thing: Forkable) -> None:
    _watched.add(thing)


def _after_fork() -> None:
    for thing in list(_watched):
        try:
            thing.after_fork()
        except Exception:  # Python would print it and leave all others as they were in the parent
            log.exception("%r could not be made anew in a forked process", thing)


os.register_at_fork(after_in_child=_after_fork)
