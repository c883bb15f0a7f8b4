"""A planner under LHD beside a device that has everything."""

from full_device import FullDevice
from layouts import FULL, STATE, WINDOW, group, layout_of

from kvcellar.config import Settings
from kvcellar.core import events
from kvcellar.core.controls import RequestControls
from kvcellar.core.offloader import Offloader
from kvcellar.index.checks import check_index
from kvcellar.index.policies.reuse import DEPTH_BANDS, NUM_AGES
from kvcellar.layout.host import plan_geometry

CHUNK = 512  # tokens
SIZE = 100  # bytes of a chunk, and of a checkpoint where there are any
GROUPS = {
    "chunks": (),
    "windows": (group(1, WINDOW, CHUNK, CHUNK + 1, SIZE),),
    "states": (group(1, STATE, CHUNK, None, SIZE),),
}
WIDE = (group(1, WINDOW, CHUNK, 2 * CHUNK + 1, SIZE),)
"""A window whose blocks neighbouring checkpoints share."""


class SmallEngine:
    """Serves prompts of a letter per chunk, and a token; copies end at once.

    Under LHD what was used more often is worth more, and of equals the latest.
    """

    def __init__(self, name="chunks", num_chunks=4, num_checkpoints=1, **options):
        full = group(0, FULL, CHUNK, None, SIZE)
        groups = WIDE if name == "wide" else GROUPS[name]
        layout = layout_of(full, *groups, hash_tokens=CHUNK, alignment=CHUNK)
        num_cells = num_chunks + num_checkpoints * (name != "chunks")
        options = {"eviction_policy": "lhd", "spaced_checkpoint_share": 0.0} | options
        geometry = plan_geometry(layout, num_cells * SIZE)
        self.planner = Offloader(layout, geometry, Settings(**options))
        self.index = self.planner.index
        self.now = 0.0
        if options["eviction_policy"] == "lhd":
            times = self.index.order.live._times
            numbers = range(len(times.density))
            times.density = [[float(n // DEPTH_BANDS)] * NUM_AGES for n in numbers]

    def serve(self, text, *, tenant=None, handed_over=(), **controls):
        """Ask for a prompt, compute it, end it; the chunks that were loaded."""
        self.now += 1.0
        name, hashes, device = f"r{self.now}", keys(text), FullDevice()
        end = CHUNK * len(text) + 1
        if controls or tenant:
            wishes = RequestControls(**controls)
            self.handle(events.Arrived(name, wishes, tenant=tenant))
        (promise,) = self.handle(events.LookUp(name, hashes, end, 0))
        found = promise.external_tokens
        self.handle(events.Allocated(name, found, device))
        self.handle(
            events.TokensComputed(name, hashes, end, found, end, device, handed_over)
        )
        self.handle(events.RequestFinished(name))
        return found // CHUNK

    def lose(self, text):
        """The device is about to lose these chunks, the last one first."""
        self.lose_blocks([(0, key) for key in reversed(keys(text))])

    def lose_blocks(self, blocks, device=None):
        """The same of blocks by group and key; of a device that has the rest."""
        self.handle(events.BlocksThreatened(blocks, device or FullDevice()))

    def handle(self, event):
        planned = self.planner.handle(event, self.now)
        for action in planned:
            if hasattr(action, "job_id"):
                self.planner.handle(events.JobDone(action.job_id), self.now)
        check_index(self.index)
        return planned

    @property
    def held(self):
        """The ends of what is there."""
        nodes = self.index.nodes.values()
        return sorted(node.key.decode() for node in nodes if node.is_leaf)

    @property
    def lacking(self):
        """Chunks of the last prompt that were computed, by reason."""
        misses = self.planner.ledger.recent[-1].misses
        return {s.reason: s.num_tokens // CHUNK for s in misses if s.num_tokens > 1}

    def evict_all(self):
        while self.index.evict_one():
            pass
        assert [] == self.held


def keys(text):
    return [text[:end].encode() for end in range(1, len(text) + 1)]


def used_twice(name="chunks", num_chunks=4, num_checkpoints=1, **options):
    """An engine that holds a prompt of four chunks, and has room for so many."""
    engine = SmallEngine(name, num_chunks, num_checkpoints, **options)
    assert 0 == engine.serve("abcd", handed_over=(4 * CHUNK,))
    engine.lose("abcd")
    assert 4 == engine.serve("abcd")
    return engine
