"""The real command: piped, and in a terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from pyslot.cli import app

Pipe = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = (sys.executable, "-m", "pyslot.cli")
_MEANT_FOR_US = ("PYSLOT_", "FORCE_COLOR", "NO_COLOR", "COLUMNS", "LINES", "TTY_")


def environment() -> dict[str, str]:
    """What a user's terminal has, and nothing that the machine of the tests adds."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(_MEANT_FOR_US)}
    path = [str(Path(__file__).parents[2]), plain.get("PYTHONPATH", "")]
    return plain | {"TERM": "xterm-256color", "PYTHONPATH": os.pathsep.join(filter(None, path))}


class Seen(NamedTuple):
    """What came on a terminal."""

    status: int
    text: str
    echoes: bool
    """Whether the terminal was left as it was."""


@pytest.fixture
def pipe(tmp_path: Path) -> Pipe:
    """Run it in an empty directory with its output piped: `pipe("doctor", url)`."""

    def run(*args: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *args],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment() | variables,
            timeout=50,
        )

    return run


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Pipe:
    """The same within the tests' own process, which is quicker."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(_MEANT_FOR_US)]:
        monkeypatch.delenv(name)

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        capsys.readouterr()
        status = app.run(args)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(args, status, out, err)

    return run


class Terminal:
    """One run of the command in a terminal of 80 by 24."""

    def __init__(self, *args: str, cwd: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.process = subprocess.Popen(
            [*COMMAND, *args], stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment()
        )
        os.close(slave)
        self.text = ""

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as one does that nobody has meddled with."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ECHO)

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def read_until(self, there: Callable[[str], bool], patience: float = 30) -> str:
        """Read on until the text that came satisfies, or fail with what came."""
        end = time.monotonic() + patience
        while not there(self.text):
            ready, _, _ = select.select([self._master], [], [], max(end - time.monotonic(), 0))
            assert ready, f"it did not come within {patience} s: {self.text!r}"
            if not self._read():
                assert there(self.text), f"it ended before: {self.text!r}"
        return self.text

    def finish(self) -> Seen:
        """Read to the end."""
        while self._read():
            pass
        status = self.process.wait(30)
        seen = Seen(status, self.text, self.echoes())
        os.close(self._master)
        return seen

    def _read(self) -> bool:
        try:
            some = os.read(self._master, 65536)
        except OSError:  # Linux says so when the other end is closed
            return False
        self.text += some.decode(errors="replace").replace("\r\n", "\n")
        return bool(some)


@pytest.fixture
def terminal(tmp_path: Path) -> Callable[..., Terminal]:
    """Run it in a terminal, in an empty directory."""
    return lambda *args: Terminal(*args, cwd=tmp_path)
