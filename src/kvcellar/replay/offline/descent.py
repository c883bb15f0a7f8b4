"""Looking for the prices at which the bound is lowest: a subgradient descent.

Where memory is overfull its price rises, where it is empty the price falls. The step is
the usual share of the value over the square of the slope, and the slope is smoothed
over a few steps. Every value seen is a bound, so the lowest is taken.

Source of the method: Held, Wolfe and Crowder, Validation of subgradient optimization,
Mathematical Programming 6, 1974.
"""

import numpy as np

from kvcellar.replay.offline.prices import PricedUses

NUM_STEPS = 300
_SMOOTHING = 0.8
_FIRST_STEP = 0.05
_PATIENCE = 10  # steps without a lower value, after which steps get shorter
_SHORTER = 0.6
_NUM_SPLITS = 30


def lowest_bound(uses: PricedUses, num_requests: int) -> float:
    """Tokens that at most can be found: the lowest bound met on the way.

    Args:
        num_requests: of the trace.
    """
    prices = np.full(num_requests, _best_single(uses, num_requests))
    value, free = uses.at(prices)
    lowest, best = value, (prices, free)
    slope, share, num_in_vain = free, _FIRST_STEP, 0
    for _ in range(NUM_STEPS):
        usable = np.where((prices <= 0.0) & (slope > 0.0), 0.0, slope)
        square = float(np.cumsum(usable * usable)[-1])
        if square:
            prices = np.maximum(prices - share * value / square * usable, 0.0)
            value, free = uses.at(prices)
            slope = _SMOOTHING * slope + (1.0 - _SMOOTHING) * free
        num_in_vain += 1
        if value < lowest:
            lowest, best, num_in_vain = value, (prices, free), 0
        elif num_in_vain == _PATIENCE:
            share, num_in_vain = share * _SHORTER, 0
            prices, slope = best
    return lowest


def _best_single(uses: PricedUses, num_requests: int) -> float:
    """The one price for all times with the lowest bound, by ternary search."""

    def bound(price: float) -> float:
        return uses.at(np.full(num_requests, price))[0]

    low, high = 0.0, uses.highest_price
    for _ in range(_NUM_SPLITS):
        third = (high - low) / 3
        if bound(low + third) <= bound(high - third):
            high -= third
        else:
            low += third
    return min((0.0, low), key=bound)
