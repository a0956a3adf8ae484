"""`python -m bench`: some minutes on two servers. `--full`: all servers, more rounds, and docs/benchmarks.md."""

from __future__ import annotations

import json
import os
import platform
import sys
from pathlib import Path

from bench import report, suite
from tests.servers.binaries import SERVERS

RESULTS = Path("bench/results")


def main() -> None:
    full = "--full" in sys.argv
    if full:
        results = suite.run([name for name in SERVERS if name != "redis-6.2"], rounds=9, seconds=1.0)
    else:
        results = suite.run(["valkey-9.1", "redis-7.0"], rounds=2 if "--smoke" in sys.argv else 5, seconds=0.4)
    results["remark"] = (
        f"Python {platform.python_version()} on {os.cpu_count()} cores, servers on loopback; load of the last quarter "
        f"hour {os.getloadavg()[2]:.1f}. Medians of interleaved rounds, the middle half marked. What peers do is the "
        "nearest to ours that they offer: see `bench/peers.py` for the differences."
    )
    RESULTS.mkdir(exist_ok=True)
    if (RESULTS / "bars.json").exists():
        results["bars"] = json.loads((RESULTS / "bars.json").read_text())
    (RESULTS / ("full.json" if full else "last.json")).write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, Path("docs/benchmarks.md") if full else RESULTS / "report.md")


if __name__ == "__main__":
    main()
