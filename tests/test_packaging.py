"""What is shipped is whole: wheels from the tree and from the sdist are the same, and work with no extra installed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*args: str | Path, cwd: Path = ROOT) -> str:
    done = subprocess.run([*map(str, args)], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{args}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Build both ways: the wheel from the sdist, and the wheel from the tree."""
    folder = tmp_path_factory.mktemp("dist")
    build = (sys.executable, "-m", "build", "--no-isolation")
    run(*build, "--outdir", folder / "sdist", ROOT)
    run(*build, "--wheel", "--outdir", folder / "tree", ROOT)
    (from_sdist,) = (folder / "sdist").glob("*.whl")
    (from_tree,) = (folder / "tree").glob("*.whl")
    return from_sdist, from_tree


@pytest.fixture(scope="module")
def bare(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment that holds the wheel and what it requires, no more; return its Python."""
    folder = tmp_path_factory.mktemp("bare")
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    python = folder / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", built[0])
    return python


def execute(python: Path, code: str) -> str:
    # Isolated, and elsewhere: the checkout must not be found in place of what is installed.
    return run(python, "-I", "-c", textwrap.dedent(code), cwd=python.parent)


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as files:
        return {file.filename: file.CRC for file in files.infolist()}


def test_both_wheels_hold_the_same_files(built: tuple[Path, Path]) -> None:
    from_sdist, from_tree = map(contents, built)
    assert from_sdist == from_tree


def test_the_wheel_holds_every_adapter_and_script_and_no_litter(built: tuple[Path, Path]) -> None:
    shipped = set(contents(built[0]))
    sources = [path for top in ("adapters", "scripts") for path in (ROOT / top).rglob("*.*") if path.is_file()]
    wanted = {f"pyslot/{path.relative_to(ROOT)}" for path in sources if path.suffix != ".pyc"}
    assert "pyslot/adapters/base.py" in wanted
    assert wanted <= shipped
    litter = [name for name in shipped if not name.startswith(("pyslot/", "pyslot_limits-")) or name.endswith(".pyc")]
    assert litter == []


def test_every_script_loads_from_the_installed_wheel(bare: Path) -> None:
    out = execute(bare, "from pyslot import loader; print(*loader.load())")
    assert set(out.split()) == {path.stem for path in (ROOT / "scripts" / "v1").glob("*.lua")}


def test_every_adapter_opens_or_names_its_extra(bare: Path) -> None:
    code = """
        import importlib.metadata, pyslot.adapters.base as base
        from pyslot.errors import UsageError
        extras = importlib.metadata.metadata("pyslot-limits").get_all("Provides-Extra")
        for scheme, adapter in base._SCHEMES.items():
            for opener in base.open_store, base.open_async_store:
                try:
                    opener(f"{scheme}://", 1.0)  # what is missing comes before what is wrong with the URL
                except UsageError as error:
                    assert adapter in extras and f"'pyslot-limits[{adapter}]'" in str(error), (scheme, error)
                else:
                    print(adapter)
    """
    assert set(execute(bare, code).split()) <= {"memory"}


def test_every_adapter_module_wants_nothing_but_its_client(bare: Path) -> None:
    code = """
        import importlib, pathlib, pyslot.adapters.base as base
        for path in pathlib.Path(base.__file__).parent.glob("[!_]*.py"):
            try:
                importlib.import_module(f"pyslot.adapters.{path.stem}")
            except ModuleNotFoundError as error:
                print(path.stem, error.name)
    """
    wanted = dict(line.split() for line in execute(bare, code).splitlines())
    clients = {"redis": {"redis"}, "valkey": {"valkey"}, "glide": {"glide", "glide_sync", "glide_shared"}}
    assert {module: name for module, name in wanted.items() if name not in clients.get(module, ())} == {}


def test_the_package_imports_with_no_extra(bare: Path) -> None:
    origin = execute(bare, "import pyslot; print(pyslot.__file__)").strip()
    assert not origin.startswith(os.fspath(ROOT))
