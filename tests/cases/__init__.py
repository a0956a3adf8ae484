"""Faults that users of comparable systems reported in public, and what must hold here instead.

Each test names the reports it comes from. They run over a few stores; the contract runs over all.
"""
