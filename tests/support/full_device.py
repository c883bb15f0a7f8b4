"""A device that has everything, for planners whose engine does not matter."""


class FullDevice:
    """Block tables and a prefix cache in which everything is there."""

    def block_ids(self, group_id, indices):
        return [1] * len(indices)

    def is_kept(self, group_id, index):
        return True

    def find(self, group_id, block_hash):
        return 1
