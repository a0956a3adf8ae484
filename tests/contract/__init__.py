"""The contract of every store: one suite, written once, over each store, blocking and asynchronous.

A store joins by one row in `places.PLACES`. A store from elsewhere subclasses `Contract` and gives a `place` fixture.
"""

import pytest

pytest.register_assert_rewrite(
    *(f"{__name__}.{name}" for name in ("admission", "clocks", "groups", "library", "places", "scripts"))
)
