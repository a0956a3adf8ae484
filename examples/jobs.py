"""Jobs of which only two run at a time, over all workers on all machines.

A job that finds no room goes back into its queue and comes again when there may be some: no worker stands waiting. The
slot of a worker that is killed comes back by itself, one lease later.

    pip install 'pyslot-limits[redis]' 'celery[redis]'
    REDIS_URL=redis://localhost:6379 celery -A examples.jobs worker --concurrency 8
"""

from __future__ import annotations

import os
import random
import time

from celery import Celery, Task

from pyslot import Limiter, Slots

URL = os.environ.get("REDIS_URL", "redis://localhost:6379")

app = Celery("jobs", broker=URL, backend=URL)
# A job that waits in one worker can't be taken by another, and what a killed worker had is run again, when Redis as a
# broker has not heard of it for as long as its longest job may take.
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)
app.conf.broker_transport_options = {"visibility_timeout": 3600}

limiter = Limiter(URL)
reports = Slots("reports", limit=2, lease=float(os.environ.get("LEASE", "30")))


@app.task(bind=True, max_retries=None)  # type: ignore[untyped-decorator]  # celery ships no types
def report(self: Task, number: int, seconds: float) -> int:
    """Make a report, which takes a while."""
    decision = limiter.try_acquire(reports)
    if not decision:
        wait = decision.retry_after or 1.0
        raise self.retry(countdown=wait * random.uniform(1.0, 1.5))  # noqa: S311 - no secret
    with decision.require():
        time.sleep(seconds)
    return number
