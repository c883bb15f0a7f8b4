"""A consumer of vLLM's published KV events, as a router would be one.

What was sent before it had joined it asks for again, as vLLM's protocol has it.
"""

import itertools

import msgspec
import zmq
from vllm.distributed.kv_events import KVEventBatch, ZmqEventPublisher

POLL_MILLISECONDS = 500
MOST_POLLS = 200


class KvSubscriber:
    """Receives batches, in order and without gaps.

    Args:
        endpoint: where the engine publishes.
        replay_endpoint: where it answers for what was missed.
    """

    def __init__(self, endpoint, replay_endpoint):
        context = zmq.Context.instance()
        self._live = context.socket(zmq.SUB)
        self._live.setsockopt(zmq.SUBSCRIBE, b"")
        self._live.connect(endpoint)
        self._replay = context.socket(zmq.DEALER)
        self._replay.connect(replay_endpoint)
        self._batches = {}

    def read(self, num_batches):
        """The first so many batches."""
        return self.read_until(lambda batches: len(batches) >= num_batches)

    def read_until(self, is_enough):
        """Batches from the first on, without a gap, until they are enough."""
        for _ in range(MOST_POLLS):
            batches = self._without_gap()
            if is_enough(batches):
                return batches
            if self._live.poll(POLL_MILLISECONDS):
                self._take(self._live.recv_multipart())
            else:
                self._ask_again()
        raise AssertionError(f"not enough in {len(self._batches)} batches")

    def _without_gap(self):
        numbers = itertools.takewhile(self._batches.__contains__, itertools.count())
        return [self._batches[number] for number in numbers]

    def close(self):
        self._live.close(linger=0)
        self._replay.close(linger=0)

    def _ask_again(self):
        self._replay.send_multipart((b"", (0).to_bytes(8, "big")))
        while self._replay.poll(POLL_MILLISECONDS):
            _, *frames = self._replay.recv_multipart()
            if frames[1] == ZmqEventPublisher.END_SEQ:
                return
            self._take(frames)

    def _take(self, frames):
        _, number, payload = frames
        batch = msgspec.msgpack.decode(payload, type=KVEventBatch)
        self._batches[int.from_bytes(number, "big")] = batch
