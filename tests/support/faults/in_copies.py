"""Copies on a device, and ranks that share a memory."""

from faults.fault import Fault

IN_COPIES = (
    Fault(
        "cuda: copies do not wait for the model",
        "device/cuda.py",
        "        self._driver.wait(stream, fence)\n",
        "",
    ),
    Fault(
        "cuda: stores and loads do not wait for each other",
        "device/cuda.py",
        "            self._driver.wait(stream, earlier)\n",
        "            pass\n",
    ),
    Fault(
        "cuda: a move does not wait",
        "device/cuda.py",
        "            self._wait_until_passed(earlier)\n",
        "            pass\n",
    ),
    Fault(
        "cuda: a job is over when it is started",
        "device/cuda.py",
        "return self.end is None or self.driver.is_done(self.end)",
        "return True",
    ),
    Fault(
        "cuda: the end is marked before the copies",
        "device/cuda.py",
        "        error = self._queue(stream, runs, job.direction)\n"
        "        end = self._mark_end(stream)\n",
        "        end = self._mark_end(stream)\n"
        "        error = self._queue(stream, runs, job.direction)\n",
    ),
    Fault(
        "cuda: a job that fails halfway is over at once",
        "transfer/stream_engine.py",
        "        if not copying.is_done():\n",
        "        if error is None and not copying.is_done():\n",
    ),
    Fault(
        "cuda: nobody waits for a copy that was overtaken",
        "transfer/job_queue.py",
        "lambda: wanted.isdisjoint(self._in_flight), timeout_seconds",
        "lambda: bool(wanted), timeout_seconds",
    ),
    Fault(
        "cuda: the fence is put when the job starts",
        "transfer/stream_engine.py",
        "self._begin(job, item.fence)",
        "self._begin(job, self._device.fence())",
    ),
    Fault(
        "cuda: blocks are not part of the order",
        "device/order.py",
        "newest[lane] = max([newest[lane], *blocks])",
        "newest[lane] = max([newest[lane], *(0 for _ in blocks)])",
    ),
    Fault(
        "cuda: a slab's earlier class is forgotten",
        "device/order.py",
        "                _newest(self._before_change[lane], slabs),\n",
        "",
    ),
    Fault(
        "cuda: runs cross registered ranges",
        "device/pinning.py",
        "        runs, host = cut_runs(runs, host, self._borders[1:-1])\n",
        "",
    ),
    Fault(
        "cuda: a piece is pinned under an unpinned copy",
        "device/pinning.py",
        "        with self._changing:\n            driver.register",
        "        if True:\n            driver.register",
    ),
    Fault(
        "cuda: sources are read out of stream order",
        "device/libcuda.py",
        "source_access_order=_SOURCE_IN_STREAM_ORDER",
        "source_access_order=3",
    ),
    Fault(
        "cuda: memory is given back under a running copy",
        "integrations/vllm/worker_side.py",
        "            if self.transfers.close(CLOSE_WAIT_SECONDS):\n",
        "            if self.transfers.close(CLOSE_WAIT_SECONDS) or True:\n",
    ),
    Fault(
        "shared: a move does not wait for slow ranks",
        "transfer/engine.py",
        "        self._share.meet_before(job)\n",
        "",
    ),
    Fault(
        "shared: what follows a move does not wait for all parts of it",
        "transfer/engine.py",
        "        self._share.meet_after(job)\n",
        "",
    ),
    Fault(
        "shared, cuda: a move does not wait for slow ranks",
        "transfer/stream_engine.py",
        "        self._share.meet_before(job)\n",
        "",
    ),
    Fault(
        "shared, cuda: what follows a move does not wait for all parts of it",
        "transfer/stream_engine.py",
        "        self._share.meet_after(job)\n",
        "",
    ),
    Fault(
        "shared, cuda: a move does not wait for this rank's own copies",
        "transfer/stream_engine.py",
        "if not self._wait(self._is_quiet, MEETING_SECONDS):",
        "if False:",
    ),
    Fault(
        "shared: a rank loads its part only",
        "transfer/arena_share.py",
        "if job.direction is Direction.LOAD:",
        "if False:",
    ),
    Fault(
        "shared: a rank goes on storing after a failed move",
        "transfer/job_queue.py",
        "(is_load or self._share is not None)",
        "is_load",
    ),
    Fault(
        "shared: nobody hears of a failed move",
        "transfer/job_queue.py",
        "            self._share.leave()",
        "            pass",
    ),
    Fault(
        "ranks: the fullest rank does not bound the slabs",
        "layout/cut.py",
        "return max(by_rank) if self._budget.is_per_rank else sum(by_rank)",
        "return min(by_rank) if self._budget.is_per_rank else sum(by_rank)",
    ),
    Fault(
        "ranks: each cuts its memory for itself",
        "integrations/vllm/worker_side.py",
        "plan = self._plan(facts, num_sharing)",
        "plan = self._plan((self._own_facts,) * len(facts), num_sharing)",
    ),
    Fault(
        "ranks: nobody compares the cuts",
        "integrations/vllm/ranks.py",
        "        if one.geometry == ours:\n",
        "        if True:\n",
    ),
    Fault(
        "ranks: a store is found at the first rank's report",
        "integrations/vllm/jobs.py",
        "            if not self._ranks_left[job_id]:\n",
        "            if True:\n",
    ),
    Fault(
        "ranks: a rank that tells twice counts twice",
        "integrations/vllm/jobs.py",
        "self._ranks_left[job_id] = left & ~ranks",
        "self._ranks_left[job_id] = left & ~ranks & (left - 1)",
    ),
    Fault(
        "ranks: a late report ends the engine",
        "integrations/vllm/jobs.py",
        "            if left is None:\n                continue\n",
        "            if left is None:\n                raise KeyError(job_id)\n",
    ),
    Fault(
        "ranks: one rank's success hides another's failure",
        "integrations/vllm/messages.py",
        "        self.failed |= other.failed\n",
        "        self.failed &= other.failed\n",
    ),
    Fault(
        "ranks: groups share cells that differ elsewhere",
        "layout/ranks.py",
        "classes.index(sizes) for sizes in by_position",
        "[c[0] for c in classes].index(sizes[0]) for sizes in by_position",
    ),
    Fault(
        "ranks: a rank that cannot start stays away",
        "integrations/vllm/exchange.py",
        "        exchange.gather(name, _Refusal(str(cause)))\n",
        "",
    ),
)
