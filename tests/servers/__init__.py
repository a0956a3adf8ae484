"""Real servers for tests and benchmarks: `binaries` finds their programs, `process` runs them."""
