"""The benchmarks run, and a run makes a page with pictures. What they measure is not a test's business."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PEERS = ("limits", "matplotlib", "pyrate_limiter", "pytest_benchmark", "steindamm", "throttled")


def run(*args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *args], cwd=cwd, env=env, capture_output=True, text=True, check=False)


def test_without_their_packages_they_say_in_one_line_what_to_install(tmp_path: Path) -> None:
    program = (
        "import runpy, sys; sys.argv = ['bench']; sys.modules['limits'] = None; runpy.run_module('bench', "
        "run_name='__main__')"
    )
    found = run("-c", program, cwd=tmp_path)
    assert found.returncode == 1
    assert len(found.stderr.splitlines()) == 1
    assert "'limits': pip install --group bench" in found.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not all(map(find_spec, PEERS)), reason="pip install --group bench")
def test_the_suites_run_on_every_server() -> None:
    found = run("-m", "pytest", "-q", "bench/suites", "--benchmark-disable", cwd=ROOT)
    assert found.returncode == 0, found.stdout
    assert " passed" in found.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not all(map(find_spec, PEERS)), reason="pip install --group bench")
def test_the_smoke_run_draws_every_picture_its_page_shows(tmp_path: Path) -> None:
    found = run("-m", "bench", "--smoke", cwd=tmp_path)
    assert found.returncode == 0, found.stderr
    results = tmp_path / "bench/results"
    page = (results / "smoke.md").read_text()
    shown = re.findall(r"\]\((smoke/[\w-]+\.svg)\)", page)
    assert {results / name for name in shown} == set(results.glob("smoke/*.svg"))
    scenes = json.loads((results / "smoke.json").read_text())["scenes"]
    loads = [load for places in scenes.values() for loads in places.values() for load in loads.values()]
    assert loads
    assert all(each["steps"] > 0 for rounds in loads for each in rounds)
    assert "bench/results/smoke.md" in found.stdout
