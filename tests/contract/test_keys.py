"""Names: no two limits share a key, no name leaves its hash tag, and hash slots are those of the servers."""

from __future__ import annotations

import pytest

from pyslot import Slots, Window
from pyslot.keys import Naming, hash_slot
from pyslot.kinds import Limit
from tests.servers.process import Cluster

NAMES = [
    "a",
    "a:s",
    "{a}",
    "a}:s",
    "{",
    "}",
    "%7B",
    "a%",
    "a:w:b:60000",
    " ",
    "\n",
    "ä",
    "\ud800",
    "\udc00",
    "{}",
    "x" * 999,
]


def _limits() -> list[Limit]:
    return [
        *(Slots(name, 5) for name in NAMES),
        *(Slots(name, 5, tag=tag) for name in NAMES for tag in NAMES),
        *(Window(name, meter, 5) for name in NAMES for meter in ("b", "b:60000", "b%3A60000", "{b}")),
        *(Window(name, "b", 5, per=per, tag=tag) for name in NAMES for per in (1, 0.001) for tag in ("a", "a:w")),
    ]


@pytest.mark.parametrize("hash_names", [False, True])
def test_no_two_limits_share_a_key(hash_names: bool) -> None:
    keys = [limit.wire(Naming(hash_names=hash_names)).key for limit in _limits()]
    assert len(set(keys)) == len(keys)


def test_no_name_leaves_its_hash_tag() -> None:
    for limit in _limits():
        key = limit.wire(Naming()).key
        assert key.count(b"{") == key.count(b"}") == 1
        assert key.startswith(b"pyslot:v1:{")
        assert key.index(b"{") + 1 < key.index(b"}")


def test_limits_of_one_subject_or_one_tag_share_a_hash_slot() -> None:
    for name in NAMES:
        subject = {
            limit.wire(Naming()).hash_slot for limit in (Slots(name, 1), Window(name, "b", 1), Window(name, "c", 1))
        }
        tag = {limit.wire(Naming()).hash_slot for limit in (Slots("a", 1, tag=name), Window("b", "c", 1, tag=name))}
        assert len(subject) == len(tag) == 1


def test_hash_slots_are_those_of_the_servers(cluster: Cluster) -> None:
    node = cluster.masters[0]
    for limit in _limits()[::7]:
        wire = limit.wire(Naming())
        assert node.command("CLUSTER", "KEYSLOT", wire.key) == wire.hash_slot
    for key in (b"", b"{}", b"{}a", b"a{b", b"a}b{c}", b"{a}{b}", b"{{a}}", b"foo{bar}{zap}", b"\x00\xff{\x00}"):
        assert node.command("CLUSTER", "KEYSLOT", key) == hash_slot(key)
