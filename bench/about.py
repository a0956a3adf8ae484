"""What a run was made of: versions, and the machine."""

from __future__ import annotations

import os
import platform
import time
from importlib.metadata import version
from pathlib import Path

from bench import beside
from pyslot.loader import load

PACKAGES = (
    "pyslot-limits",
    "redis",
    "hiredis",
    "valkey",
    "libvalkey",
    "valkey-glide",
    "valkey-glide-sync",
    "limits",
    "throttled-py",
    "pyrate-limiter",
    "steindamm",
)


def about() -> dict[str, dict[str, str]]:
    """Groups of what -> which."""
    return {
        "packages": {name: version(name) for name in PACKAGES} | {"litellm": beside.PIN.partition("==")[2]},
        "scripts": {f"{script.name}.lua": script.sha.decode() for script in load().values()},
        "machine": {
            "taken on": time.strftime("%Y-%m-%d", time.gmtime()),
            "Python": f"{platform.python_implementation()} {platform.python_version()}",
            "system": f"{platform.system()} on {platform.machine()}",
            "processor": f"{_processor()}, {os.cpu_count()} cores, shared by servers and clients",
            "load of the quarter hour before": f"{os.getloadavg()[2]:.1f}",
        },
    }


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown"
