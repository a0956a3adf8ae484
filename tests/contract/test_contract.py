"""Every invariant over every store of the table."""

from __future__ import annotations

import pytest

from tests.contract.admission import Admission
from tests.contract.clocks import Clocks
from tests.contract.groups import Groups
from tests.contract.library import Library
from tests.contract.scripts import Scripts

pytestmark = pytest.mark.asyncio(loop_scope="module")


class TestAdmission(Admission):
    pass


class TestClocks(Clocks):
    pass


class TestGroups(Groups):
    pass


class TestScripts(Scripts):
    pass


class TestLibrary(Library):
    pass
