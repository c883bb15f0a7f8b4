"""The rules of placement, and the named sets of them that a user can choose."""
