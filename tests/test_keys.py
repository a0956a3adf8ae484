"""A key says which limit it is of: parsing is the inverse of naming."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyslot import Slots, Window
from pyslot.keys import Named, Naming, parse

NAMES = st.text(st.characters(), min_size=1, max_size=20) | st.text("%{}:37BD5As\n\ud800", min_size=1, max_size=12)
PREFIXES = st.from_regex(r"[A-Za-z0-9_.:-]{1,12}", fullmatch=True)


@given(NAMES, st.none() | NAMES, NAMES, st.integers(1, 10**12), PREFIXES)
@example("s", None, "w:s", 60_000, "a:v1:")
@example("%7B", "%257B", "%3A", 1, "v1")
def test_a_key_gives_back_the_limit_it_was_made_of(
    subject: str, tag: str | None, meter: str, per: int, prefix: str
) -> None:
    naming = Naming(prefix)
    slots, window = Slots(subject, 1, tag=tag), Window(subject, meter, 1, per=per / 1000, tag=tag)
    assert parse(slots.wire(naming).key, prefix) == Named(subject, tag, None, None)
    assert parse(window.wire(naming).key, prefix) == Named(subject, tag, meter, window.per_ms)


@pytest.mark.parametrize("tag", [None, "org"])
def test_a_hashed_name_is_known_by_its_form(tag: str | None) -> None:
    key = Slots("key:sk-1", 1, tag=tag).wire(Naming(hash_names=True)).key
    named = parse(key, "pyslot")
    assert named is not None
    assert named.hashed
    assert (named.subject, named.tag) == (sha256(b"key:sk-1").hexdigest() if tag else named.subject, tag)
    assert parse(Slots("key:sk-1", 1).wire(Naming()).key, "pyslot") == Named("key:sk-1", None, None, None)


@pytest.mark.parametrize(
    "key",
    [
        b"pyslot:v1:{a}",
        b"pyslot:v1:{}:s",
        b"pyslot:v1:{a}:probe",
        b"pyslot:v1:{a}:w:tokens",
        b"pyslot:v1:{a}:w:tokens:0",
        b"pyslot:v1:{a}:w:tokens:1x",
        b"pyslot:v1:a:s",
        b"pyslot:v2:{a}:s",
        b"other:v1:{a}:s",
        b"pyslot:v1:{\xff}:s",
    ],
)
def test_what_is_no_limits_key_is_none(key: bytes) -> None:
    assert parse(key, "pyslot") is None
