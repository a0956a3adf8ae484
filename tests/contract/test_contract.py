"""Every invariant over every store of the table."""

from __future__ import annotations

from tests.contract.admission import Admission
from tests.contract.clocks import Clocks


class TestAdmission(Admission):
    pass


class TestClocks(Clocks):
    pass
