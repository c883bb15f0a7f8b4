"""Follows every block of a real engine's cache: what is loaded must have been computed.

Under load the same prompt is computed in other batches, and bf16 rounds differently
there, so answers cannot be compared. Bytes can: whatever a load puts under a prefix
hash must be, bit for bit, what the engine has computed for that hash at some time.

The engine computes some blocks that it gives no hash, and these are stored as well.
What they hold when their copy is queued is noted without a hash.
"""

import ctypes
import hashlib
from collections import Counter

_GROUP_ID_BYTES = 4  # a cached block's key ends with its group id


class BlockLedger:
    """Digests of all cached blocks, by prefix hash and group.

    Args:
        block_pool: the engine's.
        worker_side: the connector's worker half; its device's loads are noted.
        regions: addresses of every block's bytes, by position in the layout.
        group_ids: the engine's group at each position.

    Attributes:
        checked: loaded blocks that were compared, by group.
        wrong: those of them whose bytes the engine has never computed.
    """

    def __init__(self, block_pool, worker_side, regions, group_ids):
        self._pool = block_pool
        self._regions = dict(zip(group_ids, regions, strict=True))
        self.group_ids = group_ids
        self._seen = {}
        self._computed = {}
        self._computed_without_hash = {group_id: set() for group_id in group_ids}
        self._loaded = {}
        self.checked, self.wrong = Counter(), Counter()
        self._watch_loads(worker_side.device)
        self._watch_stores(worker_side.transfers)

    def after_step(self):
        """Look at the blocks that entered the prefix cache since the last look."""
        for block in self._pool.blocks:
            key = block.block_hash
            # Entered anew, a block has a new key object, even if its value is the same.
            if key is None or self._seen.get(block.block_id) is key:
                continue
            self._seen[block.block_id] = key
            group_id = int.from_bytes(key[-_GROUP_ID_BYTES:], "big")
            digest = self._digest(group_id, block.block_id)
            known = self._computed.setdefault(key, set())
            if self._loaded.pop(block.block_id, None) == digest:
                is_known = digest in known | self._computed_without_hash[group_id]
                self.checked[group_id] += 1
                self.wrong[group_id] += not is_known
            else:
                known.add(digest)

    def _watch_loads(self, device):
        """Note what each load has written, in the thread that copies."""
        copy = device.copy

        def noted(job, fence=None):
            num_bytes = copy(job, fence)
            if job.direction.value == "load":
                for part in job.copies:
                    group_id = self.group_ids[part.position]
                    for block_id in part.device_blocks.tolist():
                        self._loaded[block_id] = self._digest(group_id, block_id)
            return num_bytes

        device.copy = noted

    def _watch_stores(self, transfers):
        """Note blocks without a hash when their copy is queued, in the main thread."""
        submit = transfers.submit

        def noted(job):
            if job.direction.value == "store":
                for part in job.copies:
                    group_id = self.group_ids[part.position]
                    for block_id in part.device_blocks.tolist():
                        if self._pool.blocks[block_id].block_hash is None:
                            digest = self._digest(group_id, block_id)
                            self._computed_without_hash[group_id].add(digest)
            submit(job)

        transfers.submit = noted

    def _digest(self, group_id, block_id):
        digest = hashlib.blake2b(digest_size=16)
        for region in self._regions[group_id]:
            address = region.base_address + block_id * region.block_stride_bytes
            digest.update(ctypes.string_at(address, region.payload_bytes))
        return digest.digest()
