"""A straight line through points: a fixed part, and so much for each unit."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Line:
    """``y = fixed + per_unit * x``."""

    fixed: float
    per_unit: float

    def worst_miss(self, points: Sequence[tuple[float, float]]) -> float:
        """How far the line is off at its worst point, as a share of that point."""
        return max(abs(self.fixed + self.per_unit * x - y) / y for x, y in points)


def line_through(points: Sequence[tuple[float, float]]) -> Line:
    """Least squares; a fixed part below zero is noise, and becomes 0.

    Args:
        points: two or more, with different x and y above 0.
    """
    xs, ys = zip(*points, strict=True)
    slope, intercept = statistics.linear_regression(xs, ys)
    if intercept < 0:
        slope = sum(x * y for x, y in points) / sum(x * x for x in xs)
        intercept = 0.0
    return Line(intercept, slope)
