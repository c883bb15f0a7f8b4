"""The end of a store job: all ranks have its bytes, or one of them has not."""

from kvcellar.core.record import StoreRecord
from kvcellar.index.index import Index


def publish_store(index: Index, job: StoreRecord) -> None:
    """What the job stored can be loaded from here on."""
    for cell in job.cells:
        cell.has_landed = True
    for node, checkpoint in job.checkpoints:
        index.publish_checkpoint(node, checkpoint)
    index.publish(job.nodes)


def drop_store(index: Index, job: StoreRecord) -> None:
    """What the job was to store is not there, and leaves the index."""
    for cell in job.cells:
        cell.is_lost = True
    for node, checkpoint in job.checkpoints:
        index.fail_checkpoint(node, checkpoint)
    for node in job.nodes:
        index.fail(node)
