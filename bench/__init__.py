"""Benchmarks: ratios within one run, for machines are noisy and absolute times say little."""
