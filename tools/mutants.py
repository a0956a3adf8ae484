"""Break the scripts, the model and the flows, one way at a time, and see that the tests named here notice.

    python tools/mutants.py             # all; about two minutes
    python tools/mutants.py off-by-one  # those whose names have this in them

Works on copies in a temporary folder. A breakage is a text that stands exactly once in the sources, and another one to
put in its place. (Tools that make mutants by themselves know no Lua, and make hundreds that mean nothing.)
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
NEEDED = ("pyslot", "adapters", "scripts", "tests", "tools", "pyproject.toml", "README.md")
LUA, PY = "scripts/v1/src", "pyslot"
CONTRACT = "tests/contract/test_contract.py"
SERVER, MEMORY = "valkey-9.1-valkey-sync", "memory-sync"


class Mutant(NamedTuple):
    name: str
    where: str
    """The file, or the folder if it does not matter in which of its files the text stands."""
    text: str
    instead: str
    test: str
    """Part of the name of the tests that must notice."""
    row: str = SERVER
    """The store they run on."""
    file: str = CONTRACT


MUTANTS = (
    # What scripts admit.
    Mutant("limit off by one: one too many", f"{LUA}/decide.lua", "state[USED] + cost <= state[LIMIT] then",
           "state[USED] + cost <= state[LIMIT] + 1 then", "a_gauge_admits_its_limit_and_not_one_more"),
    Mutant("limit off by one: one too few", f"{LUA}/decide.lua", "state[USED] + cost <= state[LIMIT] then",
           "state[USED] + cost < state[LIMIT] then", "a_limit_of_one_admits_the_first"),
    Mutant("own id not looked up", f"{LUA}/decide.lua", "if not held then", "if true then",
           "the_same_acquire_twice_holds_once"),
    Mutant("not all or none", f"{LUA}/decide.lua", "if status == 1 and reply[record + 1] ~= BEFORE then",
           "if reply[record + 1] == TAKES then", "one_full_limit_refuses_for_all"),
    Mutant("never is not told from full", f"{LUA}/decide.lua", "cost > state[LIMIT] and NEVER or FULL", "FULL",
           "a_cost_above_the_limit_never_fits"),
    Mutant("a dry look takes", f"{LUA}/decide.lua", "if mode ~= 'dry' then", "if true then",
           "a_dry_call_says_what_a_real_one_would"),
    Mutant("twice in a batch holds twice", f"{LUA}/decide.lua", "if p < permits then", "if false then",
           "in_a_batch_a_duplicate_holds_once"),
    Mutant("rejoin is refused", f"{LUA}/decide.lua", "elseif state.observed or mode == 'rejoin' then",
           "elseif state.observed then", "a_rejoined_holder_counts_above_the_limit"),
    Mutant("an inexact count goes on", f"{LUA}/window.lua",
           "--# take\nif used > BEYOND then used = BEYOND end", "--# take\n", "a_count_beyond_the_exact_numbers"),
    Mutant("a batch without an end", f"{LUA}/permits.lua", "permits > 1000", "permits > 2000",
           "more_than_a_thousand_permits_are_an_error"),
    # What they do with slots.
    Mutant("a lease off by one", f"{LUA}/slots.lua", "if ends <= now then", "if ends < now then",
           "a_lapsed_slot_is_taken_anew_under_its_id"),
    Mutant("a score is no expiry", f"{LUA}/slots.lua", "ends = KEYS[k], now + state[SPAN]", "ends = KEYS[k], now",
           "a_slots_score_is_its_end"),
    Mutant("a live slot pruned", f"{LUA}/slots.lua", "0, reply[4 * k + 1] - 1)", "0, reply[4 * k + 1])",
           "never_releasing_frees_each_slot_at_its_own_time"),
    Mutant("TTL of a gauge shortened", f"{LUA}/slots.lua", "call('PEXPIRE', key, state[SPAN] + 2 * HOUR + spare)",
           "call('PEXPIRE', key, state[SPAN] + spare)", "a_gauge_outlives_its_last_slot_by_an_hour"),
    Mutant("no TTL on a gauge", f"{LUA}/slots.lua", "call('PEXPIRE', key, state[SPAN] + 2 * HOUR + spare)", "",
           "a_limit_of_one_admits_the_first"),
    Mutant("release by count", f"{LUA}/slots.lua", "call('ZREM', KEYS[k], ids[skip + 1])",
           "call('ZPOPMIN', KEYS[k], 1)", "finish_ends_all_kinds_at_once or test_a_second_release"
           " or test_finishing or a_released_slot or test_a_partly or Scripts"),
    Mutant("renewal revives", f"{LUA}/slots.lua", "held, gone = ends > now and ends, true\n  end",
           "held, gone = ends, true\n  end", "renewing_never_revives"),
    Mutant("renewal shortens", f"{LUA}/renew.lua", "math.max(held, now + state.span)", "now + state.span",
           "renewing_never_shortens"),
    Mutant("renewal shortens the TTL", f"{LUA}/renew.lua", "math.max(state.ttl, state.span + 2 * HOUR + spare)",
           "state.span + 2 * HOUR + spare", "no_call_shortens_the_life_of_a_key"),
    Mutant("ended leases counted", f"{LUA}/count.lua", "'(%.0f'", "'%.0f'",
           "never_releasing_frees_each_slot_at_its_own_time or a_lapsed or after_its_lease or real_time_lease"
           " or steps_back"),
    # What they do with windows.
    Mutant("a roll off by one", f"{LUA}/window.lua", "start and now < start + span",
           "start and now <= start + span", "a_window_is_anchored_to_its_first_unit"),
    Mutant("a start in the future stands", f"{LUA}/window.lua", "if moved then reset = span end",
           "", "a_window_that_starts_in_the_future"),
    Mutant("no TTL on a window", f"{LUA}/window.lua", "call('PEXPIRE', key, state[SPAN] + MINUTE + spare)", "",
           "a_window_admits_what_remains"),
    Mutant("settling adds", f"{LUA}/window.lua", "used - charged + units", "used + units",
           "settling_sets_and_does_not_add"),
    Mutant("an ended permit keeps its entry", f"{LUA}/window.lua",
           "call('HDEL', KEYS[k], fields[1])", "",
           "only_open_reservations_have_an_entry"),
    Mutant("of many ended permits all keep theirs", f"{LUA}/window.lua",
           "call('HDEL', KEYS[k], unpack(fields, 1, permits))", "", "only_open_reservations_have_an_entry"),
    Mutant("of many slots none is given back", f"{LUA}/slots.lua",
           "call('ZREM', KEYS[k], unpack(ids, skip + 1))", "", "a_batch_is_the_same_permits"),
    Mutant("a rolled window keeps its entries", f"{LUA}/window.lua", "call('UNLINK', key)", "",
           "a_window_that_has_rolled_is_dropped"),
    Mutant("out of memory strikes late", f"{LUA}/window.lua",
           "call('HSET', key, 's', now)\n    call('UNLINK', key)", "call('UNLINK', key)",
           "", "", "tests/scripts/test_memory_pressure.py"),
    # What they do with both.
    Mutant("not the server's clock", f"{LUA}/clock.lua", "call('TIME')", "{1, 0}",
           "goes_by_the_servers_clock"),
    Mutant("some held is all held", f"{LUA}/outcomes.lua", "all == keys and 2 or 1", "2",
           "a_release_of_some_says_which"),
    # The model beside them.
    Mutant("model: limit off by one", f"{PY}/model.py", "if state.used + cost <= state.limit:",
           "if state.used + cost < state.limit:", "a_window_admits_what_remains", MEMORY),
    Mutant("model: limit off by one in the straight line", f"{PY}/model.py", "len(gauge.ends) >= int(limit)",
           "len(gauge.ends) > int(limit)", "a_gauge_admits_its_limit_and_not_one_more", MEMORY),
    Mutant("model: a lease off by one", f"{PY}/model.py", "codes.append(int(end > self.now))",
           "codes.append(int(end >= self.now))", "renewing_never_revives", MEMORY),
    Mutant("model: nothing pruned", f"{PY}/model.py", "dropped = min(gauge.lapsed(model.now), PRUNE)", "dropped = 0",
           "test_the_model_and_the_servers_agree", "", "tests/scripts/test_model.py"),
    Mutant("model: a refund too large", f"{PY}/model.py", "min(window.used - before + after, BEYOND)",
           "min(window.used - before - after, BEYOND)", "settling_sets_and_does_not_add", MEMORY),
    # Flows.
    Mutant("order of groups lost", PY, "for hash_slot in sorted(groups)]", "for hash_slot in groups]",
           "groups_are_charged_in_ascending_order", MEMORY),
    Mutant("roll-back skipped", PY, "yield from self._send(wire_id, self._undo(answers[:-1], wire_id))", "pass",
           "the_first_refusal_ends_it_and_undoes", MEMORY),
    Mutant("roll-back of what was held before", PY, "[calls.taken(answer) for answer in reversed(answers)]",
           "[answer.parts for answer in reversed(answers)]", "an_undo_takes_back_only_what_its_call_took", MEMORY),
    Mutant("nobody looks first", PY, "if len(groups) > 1 and self._refused_lately(parts):", "if False:",
           "after_a_refusal_every_group_is_looked_at", MEMORY),
    Mutant("an unknown outcome stands", PY, "if not unsent and not self._ours(group, wire_id):", "if False:",
           "a_call_that_fails_in_the_middle_leaves_nothing and lost", MEMORY),
    Mutant("an undo is not repeated", PY, "calls.undo(group, wire_id), again=True)",
           "calls.undo(group, wire_id), again=False)", "an_undo_that_overtook_its_call", "",
           "tests/life/test_undo.py"),
    Mutant("an end that failed is forgotten", PY, "self._later(permit, groups[isinstance(error, StoreError) :])",
           "pass", "a_finish_that_fails_in_the_middle_goes_on", MEMORY),
    Mutant("a settlement forgotten", PY, "units = figures.get(wire.key)", "units = None",
           "an_outcome_says_what_was_still_held or a_configuration_loaded_anew or a_refund_takes_charges_back", MEMORY),
    # Adapters.
    Mutant("a forgotten script is an error", "adapters", 'case Verdict.NOSCRIPT if self.command[0] == "EVALSHA":',
           "case Verdict.NOSCRIPT if False:", "every_call_works_straight_after_a_script_flush"),
)  # fmt: skip


def place(root: Path, mutant: Mutant) -> Path:
    """The one file in which a mutant's text stands."""
    where = root / mutant.where
    files = [where] if where.is_file() else sorted(where.rglob("*.py"))
    found = [path for path in files if mutant.text in path.read_text("utf-8")]
    if len(found) != 1 or found[0].read_text("utf-8").count(mutant.text) != 1:
        raise SystemExit(f"{mutant.name}: its text must stand once in {mutant.where}: {mutant.text!r}")
    return found[0]


def copy(folder: Path) -> Path:
    folder.mkdir()
    for name in NEEDED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)
    if (ROOT / ".servers").exists():
        (folder / ".servers").symlink_to(ROOT / ".servers")
    return folder


def build(folder: Path) -> None:
    subprocess.run([sys.executable, "tools/build_scripts.py"], cwd=folder, check=True)


def chosen_by(mutant: Mutant) -> str:
    """The expression by which pytest picks a mutant's tests."""
    return " and ".join(f"({part})" for part in (mutant.test, mutant.row) if part)


def test(folder: Path, file: str, chosen: str) -> subprocess.CompletedProcess[str]:
    options = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--timeout", "60"]
    options += ["-k", chosen] if chosen else []
    # PYTHONDONTWRITEBYTECODE: two versions of a file within a second and of a size would pass for the same.
    env = os.environ | {"PYSLOT_EXAMPLES": "100", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(folder)}
    command = [sys.executable, "-m", "pytest", *options, file]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def check_sound(folder: Path, mutants: list[Mutant]) -> None:
    """The tests must pass as long as nothing is broken."""
    for file in sorted({mutant.file for mutant in mutants}):
        chosen = [chosen_by(mutant) for mutant in mutants if mutant.file == file]
        run = test(folder, file, " or ".join(f"({part})" for part in chosen) if all(chosen) else "")
        if run.returncode:
            raise SystemExit(f"{file} fails with nothing broken:\n{run.stdout[-3_000:]}")


def caught(folder: Path, mutant: Mutant) -> str:
    """Empty where the tests fail with the breakage; else what they said."""
    path = place(folder, mutant)
    original = path.read_text("utf-8")
    path.write_text(original.replace(mutant.text, mutant.instead), "utf-8")
    try:
        build(folder)
        broken = test(folder, mutant.file, chosen_by(mutant))
    finally:
        path.write_text(original, "utf-8")
        build(folder)
    return "" if broken.returncode == 1 else f": pytest says {broken.returncode}\n{broken.stdout[-800:]}"


def main(names: list[str]) -> int:
    chosen = [mutant for mutant in MUTANTS if all(name in mutant.name for name in names)]
    for mutant in chosen:
        place(ROOT, mutant)
    began, missed = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="pyslot-mutants-") as home:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        workers = min(os.cpu_count() or 1, 4)
        for n in range(workers):
            copies.put(copy(Path(home) / str(n)))
        check_sound(Path(home) / "0", chosen)

        def run(mutant: Mutant) -> str:
            folder = copies.get()
            try:
                return caught(folder, mutant)
            finally:
                copies.put(folder)

        with ThreadPoolExecutor(workers) as pool:
            for mutant, trouble in zip(chosen, pool.map(run, chosen), strict=True):
                missed += bool(trouble)
                print(f"{'MISSED' if trouble else 'caught'}  {mutant.name}{trouble}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} breakages caught in {time.monotonic() - began:.0f} s")
    return missed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
