"""Every script is run on a server, and must reply what the reference model replies."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from time import time_ns
from typing import NamedTuple

from pyslot.adapters.base import Store
from pyslot.calls import SCRIPTS
from pyslot.errors import StoreError
from pyslot.keys import Naming
from pyslot.kinds import Slots, Window
from pyslot.loader import Call
from pyslot.model import Model

_THEN = 1_700_000_000_000
"""The time that the scripts are told, in ms: they take it in place of the server's."""


class Verdict(NamedTuple):
    """What came of one script."""

    script: str
    fault: str
    """Empty where it did what it must."""


def verify(store: Store, prefix: str) -> Iterator[Verdict]:
    """Run each script over keys of its own, which are gone afterwards."""
    model = Model(lambda: time_ns() // 1_000_000)
    calls = _calls(prefix)
    for call in calls:
        expected = model.run(call.script.name, call.keys, call.head + call.permits)
        fault = ""
        try:
            reply = list(store.run(call))
            if reply != expected:
                fault = f"replied {reply} in place of {expected}"
        except StoreError as error:
            fault = str(error)
        yield Verdict(call.script.name, fault)


def _calls(prefix: str) -> list[Call]:
    naming, subject = Naming(prefix), f"pyslot-verify-{secrets.token_hex(4)}"
    gauge = Slots(subject, 2).wire(naming).key
    window = Window(subject, "tokens", 100).wire(naming).key
    now = b"%d" % _THEN
    return [
        Call(SCRIPTS["acquire"], (gauge,), (now, b"", b"2", b"60000"), (b"a", b"b", b"c")),
        Call(SCRIPTS["renew"], (gauge,), (now, b"90000"), (b"a", b"c")),
        Call(SCRIPTS["count"], (gauge,), (now,)),
        Call(SCRIPTS["release"], (gauge,), (now,), (b"a", b"c")),
        Call(SCRIPTS["reserve"], (window,), (now, b"", b"100", b"60000"), (b"d", b"60", b"e", b"50")),
        Call(SCRIPTS["settle"], (window,), (now, b"60000"), (b"d", b"30")),
        Call(
            SCRIPTS["admit"],
            (gauge, window),
            (now, b"", b"s", b"2", b"60000", b"w", b"100", b"60000"),
            (b"f", b"70", b"g", b"1"),
        ),
        Call(SCRIPTS["peek"], (gauge, window), (now, b"s", b"60000")),
        Call(SCRIPTS["finish"], (gauge, window), (now, b"s", b"60000"), (b"f", b"12")),
        Call(SCRIPTS["reset"], (gauge, window), ()),
    ]
