"""Faults that somebody could make: each is one edit of the sources."""

from faults.fault import Fault
from faults.in_copies import IN_COPIES
from faults.in_index import IN_INDEX
from faults.in_planner import IN_PLANNER

FAULTS = (*IN_INDEX, *IN_PLANNER, *IN_COPIES)

__all__ = ["FAULTS", "Fault"]
