"""tools/mutants.py keeps up with the sources; `make mutants` runs all of it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "mutants.py"

pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="only a checkout has the tool")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutants"] = module
    spec.loader.exec_module(module)
    return module


def test_every_breakage_has_its_place_in_the_sources_and_a_name_of_its_own() -> None:
    tool = load()
    assert len({mutant.name for mutant in tool.MUTANTS}) == len(tool.MUTANTS) >= 30
    for mutant in tool.MUTANTS:
        assert tool.place(ROOT, mutant).exists()
        assert mutant.text != mutant.instead
