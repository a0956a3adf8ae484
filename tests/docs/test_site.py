"""The site builds without a warning, with all its pages and pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1", "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")} - {"index"}
    for page in (*pages, "scripts", "changelog", "contributing", "security"):
        assert (tmp_path / page / "index.html").exists(), page
        assert f'href="{page}/"' in (tmp_path / "index.html").read_text(), f"{page} is not in the navigation"
    assert "try_acquire" in (tmp_path / "api/index.html").read_text()
