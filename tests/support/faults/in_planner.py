"""What is stored and loaded, where from and where to."""

from faults.fault import Fault

IN_PLANNER = (
    Fault(
        "a prompt that is outranked is said not to be admitted yet",
        "core/stores.py",
        "record.not_admitted = MissReason.OUTRANKED",
        "record.not_admitted = MissReason.NOT_ADMITTED",
    ),
    Fault(
        "a newcomer that its user keeps is weighed",
        "core/stores.py",
        "if is_kept or record.origin.tenant is not None:",
        "if record.origin.tenant is not None:",
    ),
    Fault(
        "a newcomer that a tenant pays for is weighed",
        "core/stores.py",
        "if is_kept or record.origin.tenant is not None:",
        "if is_kept:",
    ),
    Fault(
        "room is made for what is not wanted of a newcomer",
        "core/stores.py",
        "        keys = keys[: wanted // self.chunk_tokens]\n",
        "",
    ),
    Fault(
        "lazy mode weighs a prompt when it comes",
        "core/offloader.py",
        "self._stores.admit(record, keys, event.hashes, now)",
        "EagerStores.admit(self._stores, record, keys, event.hashes, now)",
    ),
    Fault(
        "a prompt that returns keeps no seam",
        "core/stores.py",
        "depths.append(self._num_seen(record, event))",
        "pass",
    ),
    Fault(
        "a prompt that is cut off keeps no seam",
        "core/stores.py",
        "depths.append(record.num_admitted)",
        "pass",
    ),
    Fault(
        "a seam is kept that is the first thing to go",
        "core/stores.py",
        " and not index.order.is_superseded_first",
        "",
    ),
    Fault(
        "a seam is kept where the engine sets no state aside",
        "core/stores.py",
        "if index.rules.is_overwritten:",
        "if False:",
    ),
    Fault(
        "lazy mode weighs what its user keeps",
        "core/waiting_path.py",
        "is_kept = any(one.keep and one.keep.until > now for one in self.waiting)",
        "is_kept = False",
    ),
    Fault(
        "lazy mode weighs what a tenant pays for",
        "core/waiting_path.py",
        "return self.chunk.origin.tenant is None and not is_kept",
        "return not is_kept",
    ),
    Fault(
        "lazy mode cuts a path where no checkpoint waits",
        "core/waiting_path.py",
        "[one.depth for one in self.waiting if one.has_checkpoint],",
        "[one.depth for one in self.waiting],",
    ),
    Fault(
        "of prompts that ended on a waiting path only the last is weighed",
        "core/waiting_path.py",
        "for one in self.waiting for time in one.uses]\n        if",
        "for one in self.waiting[-1:] for time in one.uses[-1:]]\n        if",
    ),
    Fault(
        "a use of what is turned away is none of what is before it",
        "core/lazy.py",
        "for time in path.uses_behind(end):",
        "for time in ():",
    ),
    Fault(
        "what is turned away goes on waiting",
        "core/lazy.py",
        "self.waiting.remove(chunk)\n                self.index.departures",
        "self.index.departures",
    ),
    Fault(
        "what is turned away was never seen",
        "core/lazy.py",
        "self.index.departures.note(chunk.key, MissReason.OUTRANKED)",
        "pass",
    ),
    Fault(
        "what came or was turned away with one before has a turn of its own",
        "core/lazy.py",
        "if chunk not in self.waiting:",
        "if False:",
    ),
    Fault(
        "lazy mode forgets uses of what waits",
        "core/lazy.py",
        "waiting.uses.append(now)",
        "pass",
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
        "event names a block as its own parent",
        "integrations/vllm/event_content.py",
        "parent = hashes.pop(0) if first else None",
        "parent = hashes[0] if first else None",
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
