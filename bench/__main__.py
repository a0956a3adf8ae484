"""`python -m bench`: five minutes on two servers and a cluster.

--full     all servers and clusters, more rounds, and docs/benchmarks.md
--smoke    everything once on one server, to see that it runs; its figures mean nothing
--redraw   the page and pictures of an earlier run again, from its JSON
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

RESULTS = Path("bench/results")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true")
    size.add_argument("--smoke", action="store_true")
    parser.add_argument("--redraw", action="store_true")
    asked = parser.parse_args()
    name = "full" if asked.full else "smoke" if asked.smoke else "last"
    try:
        from bench import report, sizes, suite  # noqa: PLC0415  # peers may be missing: that is said below
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("bench", "pyslot", "tests")):
            raise
        sys.exit(
            f"the benchmarks need the package {error.name!r}: pip install --group bench -e '.[all]' (pip 25.1 or later)"
        )
    figures = RESULTS / f"{name}.json"
    if not asked.redraw:
        RESULTS.mkdir(parents=True, exist_ok=True)
        figures.write_text(json.dumps(suite.run(sizes.SIZES[name]), indent=1) + "\n")
    results = json.loads(figures.read_text())
    if (RESULTS / "bars.json").exists():
        results["bars"] = json.loads((RESULTS / "bars.json").read_text())
    page = Path("docs/benchmarks.md") if asked.full else RESULTS / f"{name}.md"
    report.write(results, page)
    print(f"written: {figures} and {page}")


if __name__ == "__main__":
    main()
