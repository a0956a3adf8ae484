"""Every code block in the README and in docs/ runs: a page's Python from top to bottom, its commands one by one."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pyslot import AsyncLimiter, Limiter, Slots, Window
from pyslot.cli import app
from pyslot.testing import World
from tests.conftest import GetCluster, GetServer, PrivateServer
from tests.docs.pages import PAGES, ROOT, Block, blocks

LANGUAGES = {"python", "sh", "text", ""}
PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
SHELL = [block for page in PAGES for block in blocks(page) if block.language == "sh"]
SERVERS = [block for page in PAGES for block in blocks(page) if not block.language and page.name != "README.md"]
TARGETS = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

TRAFFIC = "at,customer,tokens_in,tokens_out,seconds\n2026-01-01T00:00:00,a,5,9,1.5\n2026-01-01T00:00:01,b,5,9,1.5\n"


@pytest.fixture
def here(get_server: GetServer, get_cluster: GetCluster) -> Callable[[str], str]:
    """Puts our own servers in place of those that the documentation names."""

    def replace(text: str) -> str:
        if "+cluster://localhost:6379" in text:
            text = text.replace("+cluster://localhost:6379", f"+cluster://{get_cluster('valkey-9.1').address}")
        if "//localhost:6379" in text:
            text = text.replace("//localhost:6379", f"//{get_server('valkey-9.1').address}")
        return text

    return replace


@pytest.mark.parametrize("page", PYTHON, ids=lambda page: page.name)
async def test_a_page_of_python_runs_from_top_to_bottom(page: Path, here: Callable[[str], str]) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__", "call_the_model": lambda: SimpleNamespace(total_tokens=874)}
    for block in blocks(page):
        if block.language == "python":
            await run(block, here(block.text), namespace)
    for value in namespace.values():
        if isinstance(value, AsyncLimiter):
            await value.aclose()
        elif isinstance(value, Limiter):
            value.close()


async def run(block: Block, text: str, namespace: dict[str, Any]) -> None:
    """Run it where its lines are in the page, so that a failure points there."""
    code = compile(
        "\n" * (block.line - 1) + text, block.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True
    )
    if code.co_flags & inspect.CO_COROUTINE:
        await eval(code, namespace)
    else:
        # A thread, as in a program without a loop.
        await asyncio.to_thread(exec, code, namespace)


def commands() -> Iterator[tuple[Block, str]]:
    for block in SHELL:
        for line in block.text.replace("\\\n", " ").splitlines():
            if command := line.partition("  #")[0].strip():
                yield block, command


OURS = [(block, command) for block, command in commands() if command.startswith("pyslot ")]
OTHERS = [(block, command) for block, command in commands() if not command.startswith("pyslot ")]


@pytest.mark.parametrize(
    ("block", "command"),
    [pytest.param(*each, id=f"{each[0].page}:{each[1]}") for each in OURS if " demo" not in each[1]],
)
def test_a_command_of_ours_does_what_it_says(  # noqa: PLR0917  # fixtures
    block: Block,
    command: str,
    here: Callable[[str], str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "traffic.csv").write_text(TRAFFIC)
    (tmp_path / "pyslot/demo").mkdir(parents=True)
    shutil.copy(ROOT / "pyslot/demo/azure-llm-code-2023-excerpt.csv", tmp_path / "pyslot/demo")
    status = app.run(shlex.split(here(command))[1:])
    out, err = capsys.readouterr()
    # A doctor of servers without persistence warns.
    assert status == (1 if command.startswith("pyslot doctor") else 0), out + err
    page = list(blocks(next(page for page in PAGES if page.name == block.page)))
    after = page[page.index(block) + 1] if page.index(block) + 1 < len(page) else block
    if after.language == "text" and command == list(commands_of(block))[-1]:
        for line in after.text.splitlines():
            assert line in out


def commands_of(block: Block) -> Iterator[str]:
    return (command for each, command in commands() if each == block)


@pytest.mark.parametrize(("block", "command"), [pytest.param(*each, id=f"{each[0].page}:{each[1]}") for each in OTHERS])
def test_another_command_names_what_there_is(block: Block, command: str) -> None:
    words = shlex.split(command)
    match words:
        case ["make", *targets]:
            assert set(targets) <= TARGETS
        case ["pip", "install", *packages]:
            for package in packages:
                found = re.fullmatch(r"pyslot-limits(?:\[([\w,]+)\])?", package)
                assert found is not None, package
                assert set((found[1] or "all").split(",")) <= set(EXTRAS)
        case ["bash", script]:
            assert (ROOT / script).exists()
        case ["docker", "compose", *_]:
            assert (ROOT / "compose.yaml").exists()
        case ["python", "-m", module, *_]:
            assert (ROOT / module.replace(".", "/")).exists()
        case _:
            pytest.fail(f"nobody checks this command: {command}")


def test_every_block_says_what_it_is() -> None:
    """One of an unknown language would be run by nobody; those without are run below."""
    for page in PAGES:
        for block in blocks(page):
            assert block.language in LANGUAGES, block


@pytest.mark.parametrize("block", SERVERS, ids=lambda block: f"{block.page}:{block.line}")
def test_a_servers_command_is_taken(block: Block, private_server: PrivateServer) -> None:
    server = private_server("valkey-9.1")
    for line in block.text.splitlines():
        assert server.command(*shlex.split(line)) is not None


TIMELINES = [block for block in blocks(ROOT / "README.md") if not block.language]
ROW = re.compile(r"^ +(?P<at>[\d.]+)   (?P<what>.+?)  +(?P<answer>granted|refused|late|-)  +(?P<why>.+)$")


def rows(block: Block) -> list[tuple[float, str, str, str]]:
    found = [ROW.match(line) for line in block.text.splitlines()]
    return [(float(row["at"]), row["what"], row["answer"], row["why"]) for row in found if row]


def test_the_readme_has_two_timelines() -> None:
    assert [len(rows(block)) for block in TIMELINES] == [len(block.text.splitlines()) for block in TIMELINES] == [6, 6]


def test_a_window_goes_as_the_readme_says() -> None:
    world = World()
    began = world.time()
    limiter = world.limiter()
    window = Window("team:a", "tokens", limit=100, per=60)
    permits: dict[float, Any] = {}
    for at, what, answer, why in rows(TIMELINES[0]):
        world.advance(began + at - world.time())
        if asked := re.match(r"acquire, (\d+) tokens", what):
            decision = limiter.try_acquire(window.cost(int(asked[1])))
            permits[at] = decision.permit
            assert ("granted" if decision else "refused") == answer
            if wait := re.search(r"retry_after ([\d.]+)", why):
                assert decision.retry_after == pytest.approx(float(wait[1]))
            if rolls := re.search(r"rolls at ([\d.]+)", why):
                assert at + limiter.peek(window)[0].reset_after == pytest.approx(float(rolls[1]))
        else:
            settled = re.match(r"the (?:first one|one of ([\d.]+)) settles at (\d+)", what)
            assert settled, what
            permit = permits[float(settled[1] or 0)]
            permit.settle(window.cost(int(settled[2])))
            assert permit.finish().late is (answer == "late")
        if used := re.search(r"(?:still )?(\d+) used", why) or re.search(r"= (\d+) is not above", why):
            assert limiter.peek(window)[0].used == int(used[1])


def test_a_lease_goes_as_the_readme_says() -> None:
    world = World()
    began = world.time()
    slots = Slots("key:sk-1", limit=1, lease=60)
    a, b = world.limiter(), world.limiter()
    held: Any = None
    for at, what, answer, why in rows(TIMELINES[1]):
        world.advance(began + at - world.time())
        if "acquires" in what or "tries" in what:
            decision = (a if what.startswith("A") else b).try_acquire(slots)
            assert ("granted" if decision else "refused") == answer
            held = held or decision.permit
        elif "killed" in what:
            held.detach()
        if until := re.search(r"leased until ([\d.]+)", why):
            assert at + b.peek(slots)[0].reset_after == pytest.approx(float(until[1]))
        if "counted as a leak" in why:
            assert b.incidents["leaked"] == 1
