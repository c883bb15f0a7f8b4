"""Faults that somebody could make: each is one edit of the sources."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """One planted fault: in ``file``, ``old`` becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


FAULTS = (
    Fault(
        "replaced checkpoints go first under every order",
        "index/eviction.py",
        "return self.live.superseded_first",
        "return True",
    ),
    Fault(
        "a shadow is believed whatever comes true",
        "index/policies/judge.py",
        "num * trust[name] for",
        "num for",
    ),
    Fault(
        "an order answers for what another one kept",
        "index/policies/judge.py",
        "if last_use >= self._followed_since:",
        "if True:",
    ),
    Fault(
        "checkpoints cost LHD nothing",
        "index/policies/lhd.py",
        "if not self._checkpoint_chunks:",
        "if True:",
    ),
    Fault(
        "LHD never lets the latest used go",
        "index/policies/by_age.py",
        "oldest, newest = entries[self._first][3], entries[-1][3]",
        "oldest = newest = entries[self._first][3]",
    ),
    Fault(
        "what was known below a branch is known of the other one",
        "index/ghosts.py",
        "if num_known == len(sampled) or sampled[num_known] != key:",
        "if num_known == len(sampled):",
    ),
    Fault(
        "chunks join an entry of before a whole path has gone",
        "index/ghosts.py",
        "        self._latest = None  # what goes next goes after these\n",
        "",
    ),
    Fault(
        "what is worth more goes for a newcomer",
        "index/newcomers.py",
        "        order.add(part)\n",
        "",
    ),
    Fault(
        "the use of what is turned away is forgotten",
        "index/newcomers.py",
        "        if admitted < num_chunks:\n",
        "        if False:\n",
    ),
    Fault(
        "what is turned away again is remembered twice",
        "index/newcomers.py",
        "        ghosts.all_return(keys, parts[0].start)\n",
        "",
    ),
    Fault(
        "the use of what comes in counts twice",
        "index/newcomers.py",
        "ghosts.all_leave(keys, part.start, cut, part.known, most)",
        "ghosts.all_leave(keys, part.start, cut, part.past(), most)",
    ),
    Fault(
        "a part of a prompt comes in at whose end nobody can resume",
        "index/newcomers.py",
        "if num_fitting < part.depth and self._index.rules.is_overwritten:",
        "if False:",
    ),
    Fault(
        "a prompt with a state is worth what its beginning is",
        "index/newcomers.py",
        "num_chunks, parts[-1].known)]",
        "num_chunks, parts[0].known)]",
    ),
    Fault(
        "lazy mode forgets uses of what waits",
        "core/lazy.py",
        "waiting.uses.append(now)",
        "pass",
    ),
    Fault(
        "uses that the device serves count as earned",
        "index/policies/reuse.py",
        "is_earned=run.depth > num_local",
        "is_earned=True",
    ),
    Fault(
        "window one token short",
        "attention/window.py",
        "boundary - (self.window - 1)",
        "boundary - (self.window - 2)",
    ),
    Fault(
        "local chunk relative to the boundary",
        "attention/chunked.py",
        "first = boundary - boundary % self.local_tokens",
        "first = max(boundary - self.local_tokens, 0)",
    ),
    Fault(
        "state one block too far",
        "attention/state.py",
        "return range(max(last - 1, 0), last)",
        "return range(max(last - 2, 0), max(last - 1, 0))",
    ),
    Fault(
        "hit may cover the whole prompt",
        "core/offloader.py",
        "last_token = event.num_tokens - (not margin)",
        "last_token = event.num_tokens",
    ),
    Fault(
        "forgotten draft margin",
        "core/offloader.py",
        "for _ in range(self.index.rules.margin_chunks):",
        "for _ in range(0):",
    ),
    Fault(
        "no pin between promise and load",
        "core/offloader.py",
        "        self.index.pin(node)\n        record.promise = node\n",
        "        record.promise = node\n",
    ),
    Fault(
        "store pins nothing on the device",
        "integrations/vllm/compat.py",
        "self._pool.touch(pinned)\n            self._pinned[job_id] = pinned",
        "pass",
    ),
    Fault(
        "fenced sources are not watched",
        "integrations/vllm/compat.py",
        "if any(block.block_hash is not key for block, key in watched)",
        "if any(False for block, key in watched)",
    ),
    Fault(
        "store before compute",
        "integrations/vllm/worker_side.py",
        "        for job in metadata.early_stores:",
        "        for job in (*metadata.early_stores, *metadata.stores):",
    ),
    Fault(
        "early stores are late",
        "integrations/vllm/jobs.py",
        "self._next.early_stores, self._next.stores = self._next.stores, []",
        "pass",
    ),
    Fault(
        "wrong group's stride",
        "device/regions.py",
        "tensor.storage_address + start,\n            tensor.block_stride_bytes,",
        "tensor.storage_address + start,\n            tensor.block_stride_bytes"
        " - tensor.block_stride_bytes % 3,",
    ),
    Fault(
        "head-first eviction",
        "index/eviction.py",
        "            and node.is_leaf\n",
        "",
    ),
    Fault(
        "ready before its ancestors",
        "index/index.py",
        "if node.parent.state is READY:\n                    self._make_ready",
        "if True:\n                    self._make_ready",
    ),
    Fault(
        "cell freed while a neighbour still shares it",
        "index/cell_store.py",
        "            if cell.refs == 0:",
        "            if cell.refs <= 1:",
    ),
    Fault(
        "compaction forgets to move the bytes",
        "core/offloader.py",
        "            self._move(moves) for moves in self.index.cells.take_moves()",
        "            self._move(moves)\n"
        "            for moves in [self.index.cells.take_moves(), []][1]",
    ),
    Fault(
        "blocks of a cell in another order",
        "core/store_plan.py",
        "for first in firsts for place in range(size)",
        "for first in firsts for place in reversed(range(size))",
    ),
    Fault(
        "reset lets old jobs publish",
        "index/index.py",
        "                node.move_to(EVICTING)\n",
        "                node.move_to(EVICTING)\n"
        "                node.state = STORING\n",
    ),
    Fault(
        "stale blocks stored after a reset",
        "core/offloader.py",
        "            record.is_stale = True\n",
        "",
    ),
    Fault(
        "no chunk more than the drafter resumes at",
        "core/placement.py",
        "steps_back = bool(rules.margin_chunks) or _is_cheap_to_step_back(rules)",
        "steps_back = False",
    ),
    Fault(
        "spaced checkpoints beyond their budget",
        "core/placement.py",
        "return share * rules.chunk_bytes / (",
        "return 2 * share * rules.chunk_bytes / (",
    ),
    Fault(
        "bytes under way are borrowed",
        "index/cell_store.py",
        "if cell is None or cell.is_lost or not cell.has_landed:",
        "if cell is None or cell.is_lost:",
    ),
    Fault(
        "a policy forgets what a child was used for",
        "index/index.py",
        "parent.take_over(leaf)",
        "parent.last_use = max(parent.last_use, leaf.last_use)",
    ),
    Fault(
        "failed load is tried for ever",
        "core/offloader.py",
        "            if event.has_failed and record is not None:\n"
        "                record.num_strikes += 1",
        "            if event.has_failed and record is not None:\n"
        "                record.num_strikes += 0",
    ),
    Fault(
        "failed store is published",
        "core/offloader.py",
        "        if has_failed:\n            for node in job.nodes",
        "        if False:\n            for node in job.nodes",
    ),
    Fault(
        "job ends with the first rank's padding included",
        "integrations/vllm/translate.py",
        "return int(spec.unpadded_page_size_bytes)",
        "return int(spec.page_size_bytes)",
    ),
    Fault(
        "state taken from its place in the table",
        "integrations/vllm/compat.py",
        "        if tokens_per_block is None:",
        "        if True:",
    ),
    Fault(
        "dead state rule keeps one token too few",
        "layout/dead_state.py",
        "return window_tokens - ratio + 1",
        "return max(window_tokens - ratio - 3, 1)",
    ),
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
    Fault(
        "leased leaf may go",
        "index/eviction.py",
        "and node not in self._leased",
        "and True",
    ),
    Fault(
        "each lease alone within the share",
        "index/leases.py",
        "if self.used_bytes + num_bytes > self._most_bytes",
        "if num_bytes > self._most_bytes",
    ),
    Fault(
        "tenant gets nothing back",
        "index/cell_store.py",
        "tenant.used_bytes -= self.cell_bytes(cell.position)",
        "tenant.used_bytes -= 0",
    ),
    Fault(
        "event names a block as its own parent",
        "integrations/vllm/event_content.py",
        "parent = hashes.pop(0) if first else None",
        "parent = hashes[0] if first else None",
    ),
    Fault(
        "block taken back that was never announced",
        "index/cell_store.py",
        "if cell.is_announced and self.announcements is not None:",
        "if self.announcements is not None:",
    ),
    Fault(
        "slower way chosen",
        "core/cost.py",
        "load_seconds > MARGIN * compute_seconds",
        "load_seconds < MARGIN * compute_seconds",
    ),
    Fault(
        "old rates count for ever",
        "core/cost.py",
        "is_old = now - self._last > STALE_SECONDS",
        "is_old = False",
    ),
    Fault(
        "request loads though it must not",
        "core/offloader.py",
        "if record.controls.skip_load:",
        "if False:",
    ),
)
