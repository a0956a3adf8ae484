"""The project's own files: they parse, and say the same as what they stand for."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # it ships no types

from tests.docs.pages import ROOT

FILES = [*sorted((ROOT / ".github").rglob("*.yml")), ROOT / ".pre-commit-config.yaml", ROOT / "compose.yaml"]


def load(path: Path) -> Any:  # noqa: ANN401 - any YAML
    return yaml.safe_load(path.read_text("utf-8"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_yaml(path: Path) -> None:
    assert isinstance(load(path), dict)


def test_the_workflow_runs_all_checks_on_every_python() -> None:
    job = load(ROOT / ".github/workflows/test.yml")["jobs"]["test"]
    pythons = job["strategy"]["matrix"]["python"]
    assert pythons == ["3.11", "3.12", "3.13", "3.14"]
    assert any(".ci/run" in step.get("run", "") for step in job["steps"])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["requires-python"] == f">={pythons[0]}"


def test_only_the_job_that_publishes_may_have_a_token() -> None:
    flow = load(ROOT / ".github/workflows/release.yml")
    assert flow["permissions"] == {"contents": "read"}
    assert [name for name, job in flow["jobs"].items() if "permissions" in job] == ["publish"]
    assert flow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert flow["jobs"]["publish"]["needs"] == "build"


def test_pre_commit_checks_what_lint_checks() -> None:
    makefile = (ROOT / "Makefile").read_text()
    lint = re.search(r"^lint:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert lint is not None
    entries = [hook["entry"] for repo in load(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    for line in lint[1].splitlines():
        command = line.strip().replace("$(VENV)/bin/", ".venv/bin/").removesuffix(" .")
        assert any(entry.replace(" --force-exclude", "") == command for entry in entries), command


def test_servers_to_play_with_keep_limits_and_listen_here_alone() -> None:
    services = load(ROOT / "compose.yaml")["services"]
    assert set(services) == {"redis", "valkey", "cluster"}
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert "noeviction" in str(service["command"])
    script = services["cluster"]["command"][-1].replace("$$", "$")
    assert subprocess.run(["/bin/sh", "-n", "-c", script], check=False).returncode == 0
