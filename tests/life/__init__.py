"""Leases that heal, calls that get lost, servers that go away."""
