"""Which blocks are threatened, and when the queue is looked at."""

from types import SimpleNamespace

from kvcellar.integrations.vllm.free_queue import FreeQueueWatch


class Queue:
    """A free queue of blocks, each with a hash or none."""

    def __init__(self, hashes):
        self.blocks = [
            SimpleNamespace(block_id=i, block_hash=h) for i, h in enumerate(hashes)
        ]
        self.num_looks = 0

    def front_of_free_queue(self, count):
        self.num_looks += count > 1
        return self.blocks[:count]


def key(number, group=1):
    return bytes([number]) + group.to_bytes(4, "big")


def test_only_cached_blocks_within_reach_are_reported_and_once():
    """Two horizons deep, group and hash taken apart."""
    queue = Queue([None, key(1), key(2, 3), key(3), key(4)])
    watch = FreeQueueWatch(queue, horizon=2)
    assert [(1, b"\x01"), (3, b"\x02"), (1, b"\x03")] == watch.newly_threatened()
    queue.blocks.pop(0)
    assert [] == watch.newly_threatened()


def test_a_quiet_queue_is_not_looked_at_again():
    """As long as the head has not come a horizon further."""
    queue = Queue([key(i) for i in range(20)])
    watch = FreeQueueWatch(queue, horizon=4)
    assert 8 == len(watch.newly_threatened())
    for _ in range(3):
        queue.blocks.pop(0)
        assert [] == watch.newly_threatened()
    assert 1 == queue.num_looks
    queue.blocks.pop(0)
    assert [(1, bytes([i])) for i in (8, 9, 10, 11)] == watch.newly_threatened()


def test_a_short_queue_is_all_within_reach():
    """Fewer free blocks than the horizon: every cached one is threatened."""
    watch = FreeQueueWatch(Queue([key(1)]), horizon=50)
    assert [(1, b"\x01")] == watch.newly_threatened()
    assert [] == watch.newly_threatened()
