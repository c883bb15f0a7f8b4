"""One rank's part in an arena that several ranks share, since all hold the same bytes.

Each rank stores and moves a part of every job and loads all of it:

    store of 6 blocks, 2 ranks    | b0 b1 b2 | b3 b4 b5 |
                                     rank 1     rank 0       takes turns, job by job

A part is one stretch of a group's blocks, so that blocks that follow each other stay
together. Which stretch is whose changes with the job, so that odd blocks even out.

All ranks get the same jobs in the same order and work through them at their own speed.
Why nobody reads or overwrites what another still uses:

* A load follows a store of its bytes only when every rank has reported the store.
* A cell is free for other bytes only when every rank has reported the jobs that use it,
  failed ones too.
* A *move* has neither: it is followed at once, by stores into the cells it has emptied
  and loads from those it has filled, and it may follow loads that still run elsewhere.
  So ranks meet twice. Before it, and then each has ended all jobs up to the move; and
  after it, and then each has ended its part of the move.

      rank 0   load  |meet| move |meet| store into the cell that was emptied
      rank 1   lo......ad  |meet| move |meet| store

* A rank that fails to meet, or to move, leaves: from then on it touches the arena no
  more. The others, who may still load what was there before the move, are undisturbed,
  and leave when they come to meet it.

Waiting at a move cannot end in a circle: what a rank waits for are jobs that every rank
was given in the same step or an earlier one, and carries out in a thread that waits for
nothing but such jobs.
"""

from dataclasses import replace

from kvcellar.transfer.jobs import CopyJob, Direction, GroupCopy
from kvcellar.transfer.meeting import Meeting


class ArenaShare:
    """Cuts jobs into parts and keeps moves in order.

    Args:
        rank: this one's number among those that share, from 0.
        num_ranks: how many share.
        meeting: with the others.
    """

    def __init__(self, rank: int, num_ranks: int, meeting: Meeting) -> None:
        self._rank = rank
        self._num_ranks = num_ranks
        self._meeting = meeting

    def part_of(self, job: CopyJob) -> CopyJob:
        """What this rank does of a job; groups of which it does nothing are left out.

        The parts of all ranks together are the job, and no two of them overlap.
        """
        if job.direction is Direction.LOAD:
            return job
        parts = (
            self._stretch(copy, job.job_id + place)
            for place, copy in enumerate(job.copies)
        )
        return replace(job, copies=tuple(p for p in parts if len(p.host_blocks)))

    def meet_before(self, job: CopyJob) -> None:
        """Wait until all ranks have ended all jobs before this move.

        Raises:
            TierError: a rank does not come; this one has then left too.
        """
        self._meeting.meet(2 * job.job_id)

    def meet_after(self, job: CopyJob) -> None:
        """Wait until all ranks have ended their part of this move.

        Raises:
            TierError: a rank does not come; this one has then left too.
        """
        self._meeting.meet(2 * job.job_id + 1)

    def leave(self) -> None:
        """Touch the arena no more; the others learn it when they next meet."""
        self._meeting.leave()

    def interrupt(self) -> None:
        """End waiting for others, now and later; for any thread."""
        self._meeting.interrupt()

    def close(self) -> None:
        """Give up the pipes; nothing may wait any more."""
        self._meeting.close()

    def _stretch(self, copy: GroupCopy, turn: int) -> GroupCopy:
        number = (self._rank + turn) % self._num_ranks
        total = len(copy.host_blocks)
        first, end = (total * (number + i) // self._num_ranks for i in (0, 1))
        return replace(
            copy,
            device_blocks=copy.device_blocks[first:end],
            host_blocks=copy.host_blocks[first:end],
        )
