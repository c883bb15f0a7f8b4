"""Traces made of token lists, as a reader would make them."""

from array import array

from kvcellar.replay.trace import Trace, TraceRequest


def as_trace(asked, unit):
    """Prefix ids per ``unit`` tokens; equal prefixes have equal ids."""
    ids, requests = {}, []
    for number, tokens in enumerate(asked):
        blocks = [
            ids.setdefault(tuple(tokens[:end]), len(ids))
            for end in range(unit, len(tokens) + 1, unit)
        ]
        requests.append(TraceRequest(float(number), len(tokens), 1, array("q", blocks)))
    return Trace(unit, requests)
