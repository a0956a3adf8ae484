"""Worker processes against servers that are killed, paused, moved and cut off; a checker reads what they wrote down.

python -m tests.chaos --seconds 600        # `make chaos`; every scene has its part of the time

What was really in flight and really charged is known from the workers' own books, not from pyslot's counts: each worker
writes every step into a file before and after it is taken, by the machine's monotonic clock. The books outlive a worker
that is killed. See docs/reliability.md for what is checked.
"""
