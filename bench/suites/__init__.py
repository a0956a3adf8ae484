"""pytest-benchmark over every server, client and colour, one operation a test: `make bench-suites`.

It runs one test after another, so what a noisy machine does hits some of them alone: to follow one operation through
time, compare its own figures. Who is compared with whom is in `bench.scenes`, in interleaved rounds.
"""
