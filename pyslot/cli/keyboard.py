"""Single keys from the terminal, as they are pressed."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

try:
    import termios
    import tty
except ModuleNotFoundError:  # not on Windows: there nothing can be pressed but Ctrl-C
    _POSSIBLE = False
else:
    _POSSIBLE = True

Press = Callable[[float], str]
"""Waits up to so many seconds; the key that was pressed, or nothing."""


@contextmanager
def keyboard() -> Iterator[Press]:
    """Keys for the time of a block; the terminal is as before afterwards."""
    if not _POSSIBLE or not sys.stdin.isatty():
        yield _nothing
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield lambda seconds: _press(terminal, seconds)
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _press(terminal: int, seconds: float) -> str:
    ready, _, _ = select.select([terminal], [], [], seconds)
    return os.read(terminal, 1).decode("latin-1") if ready else ""


def _nothing(seconds: float) -> str:
    time.sleep(seconds)
    return ""
