"""Revisions of one layout side by side on the same keys: today's scripts, those of the last release, in any turn.

Until there is a release there is nothing older than today's: then they take turns with the scripts as a caller might
have rewritten them who changed the text and not the meaning, so that this test runs before it is needed.
"""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyslot.loader import LAYOUT
from pyslot.model import Model
from tests.conftest import GetServer
from tests.contract.places import START
from tests.contract.wire import SCRIPTS, G, W, acquire, admit, count, finish, peek, release, renew, reserve, settle
from tests.scripts.wire import connect

ROOT = Path(__file__).parents[2]
RULES = (G(3), W(100))


def _git(*args: str) -> str:
    run = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if run.returncode else run.stdout


def last_release() -> dict[str, bytes]:
    """The scripts of this layout as the last tagged release had them; those it lacked are left out."""
    tag = _git("describe", "--tags", "--abbrev=0", "--match", "v[0-9]*").strip()
    texts = {name: _git("show", f"{tag}:scripts/{LAYOUT}/{name}.lua").encode() for name in SCRIPTS} if tag else {}
    return {name: text for name, text in texts.items() if text}


def rewritten(text: bytes) -> bytes:
    """Another text of the same meaning."""
    return b"-- another revision\n" + text.replace(b"  ", b"    ")


def turns(seed: int) -> Iterator[tuple[str, tuple[bytes, ...], tuple[bytes, ...]]]:
    rng = random.Random(seed)
    now = START
    for n in range(300):
        now += rng.randrange(4_000)
        id, other = f"p{rng.randrange(12)}", f"p{n}"
        cost, used = rng.randrange(60), rng.choice(["-", rng.randrange(60)])
        call = rng.choice(
            [
                acquire([G(3)], id, other),
                renew([G(3)], id, other),
                release([G(3)], id),
                reserve([W(100)], (id, cost)),
                settle([W(100)], (id, used)),
                admit(RULES, (id, cost), (other, 5)),
                admit(RULES, (id, cost), mode="dry"),
                admit(RULES, (other, cost), mode="rejoin"),
                finish(RULES, (id, used)),
                count(G(3)),
                peek(*RULES),
            ]
        )
        yield call.script.name, call.keys, (b"%d" % now, *call.head[1:], *call.permits)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("server_name", ["redis-6.2", "valkey-9.1"])
def test_last_revisions_scripts_and_todays_agree_on_the_same_keys(
    get_server: GetServer, server_name: str, seed: int
) -> None:
    rng = random.Random(seed)
    today = {name: script.text for name, script in SCRIPTS.items()}
    before = last_release() or {name: rewritten(text) for name, text in today.items()}
    model = Model(lambda: START)
    ran = {"today": 0, "before": 0}
    with connect(get_server(server_name)) as wire:
        for name, keys, args in turns(seed):
            old = rng.random() < 0.5 and name in before
            ran["before" if old else "today"] += 1
            text = before[name] if old else today[name]
            assert wire.run(b"EVAL", text, len(keys), *keys, *args) == model.run(name, keys, args), (name, old)
    assert min(ran.values()) > 100
