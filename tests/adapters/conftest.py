from __future__ import annotations

import pytest

from tests.adapters.helpers import KINDS, Kind


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[kind for kind in KINDS if kind.blocking], ids=str)
def blocking(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture(params=[kind for kind in KINDS if not kind.blocking], ids=str)
def nonblocking(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]
