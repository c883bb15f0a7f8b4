"""What ``/kvcellar/status`` says: recorded from a real server, and made up."""

import json
from pathlib import Path

from kvcellar.monitor.follow import Follower

RECORDED = Path(__file__).parent.parent / "data" / "top_status.json"
SOURCES = ("device", "host", "computed")


def recorded():
    """The recorded answer, with its history."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def engine(uptime, totals=None, *, number=0, process_id=7, **fields):
    """One engine's answer with these totals."""
    return {
        "engine": number,
        "process_id": process_id,
        "model": "tiny",
        "uptime_seconds": uptime,
        "totals": totals or {},
        "tiers": {"host": {"capacity_bytes": 1000, "used_bytes": 400, "chunks": 3}},
        "capacity": {"chunk_bytes": 100},
        **fields,
    }


def tokens(device=0, host=0, computed=0, **more):
    """Totals by where prompt tokens came from."""
    values = zip(SOURCES, (device, host, computed), strict=True)
    return {f"prompt_tokens_{source}": value for source, value in values} | more


def answer(*engines):
    """A server's answer."""
    return {"engines": list(engines)}


def followed(*answers):
    """A follower that was given these, one a second."""
    follower = Follower()
    for second, one in enumerate(answers):
        follower.answered(one, float(second))
    return follower
