"""Public traces, where they are at hand: the figures that others count in them."""

import pytest

from kvcellar.replay.readers import Arrivals, open_trace

pytestmark = pytest.mark.traces

CONVERSATION = "mooncake/conversation_trace.jsonl.gz"
AGENTS = "weka/cc_traces_v8_local.jsonl.gz"


def sums(trace):
    requests = list(trace.requests)
    return (
        len(requests),
        sum(request.num_prompt_tokens for request in requests),
        sum(request.num_output_tokens for request in requests),
    )


def infinite_hit(trace):
    """Share of prompt tokens that a cache without end gives back; its blocks."""
    seen, num_hit, num_all = set(), 0, 0
    for request in trace.requests:
        num_known = 0
        for block in request.blocks:
            if block not in seen:
                break
            num_known += 1
        most = max(request.num_prompt_tokens - 1, 0) // trace.block_tokens
        num_hit += min(num_known, most) * trace.block_tokens
        num_all += request.num_prompt_tokens
        seen.update(request.blocks)
    return num_hit / num_all, len(seen)


def test_the_conversation_trace_has_its_published_figures(traces_dir):
    """12,031 requests, 144.8 M and 4.12 M tokens; 37.3 % with an endless cache."""
    trace = open_trace(traces_dir / CONVERSATION)
    assert (12_031, 144_793_823, 4_122_048) == sums(trace)
    assert 0.3734 == pytest.approx(infinite_hit(trace)[0], abs=5e-5)
    assert 3536.999 == pytest.approx(
        max(r.arrival_seconds for r in trace.requests), 1e-3
    )


def test_jitter_spreads_the_coarse_stamps_of_the_conversation_trace(traces_dir):
    """1,180 stamps become as many times as there are requests, each within 3 s."""
    path = traces_dir / CONVERSATION
    coarse = [r.arrival_seconds for r in open_trace(path).requests]
    spread = [
        r.arrival_seconds
        for r in open_trace(path, arrivals=Arrivals(jitter_seconds=3.0)).requests
    ]
    assert (1_180, 12_031) == (len(set(coarse)), len(set(spread)))
    assert sorted(spread) == spread
    assert all(0 <= b - a < 3.0 for a, b in zip(coarse, spread, strict=True))


@pytest.mark.timeout(1200)
def test_the_agent_sessions_have_their_counted_figures(traces_dir):
    """46,218 requests, 5,467 M and 20.3 M tokens, 96.2 %, 3,195,527 unique blocks."""
    trace = open_trace(traces_dir / AGENTS)
    assert 64 == trace.block_tokens
    num_requests, num_prompt_tokens, num_output_tokens = 0, 0, 0
    last = 0.0
    for request in trace.requests:
        num_requests += 1
        num_prompt_tokens += request.num_prompt_tokens
        num_output_tokens += request.num_output_tokens
        assert last <= request.arrival_seconds
        last = request.arrival_seconds
    counted = (num_requests, num_prompt_tokens, num_output_tokens)
    assert (46_218, 5_467_403_989, 20_339_420) == counted
    share, num_blocks = infinite_hit(trace)
    assert 0.9623 == pytest.approx(share, abs=5e-5)
    assert 3_195_527 == num_blocks


@pytest.mark.parametrize(
    ("name", "num_requests", "num_sessions"),
    [
        ("text/tau_bench_airline_gpt4o.jsonl.xz", 2_454, 200),
        ("text/agent_sessions.jsonl.xz", 675, 26),
    ],
)
def test_text_sessions_have_their_counted_requests(
    traces_dir, name, num_requests, num_sessions
):
    """As many requests and sessions as are counted by others."""
    requests = list(open_trace(traces_dir / name).requests)
    assert num_requests == len(requests)
    assert num_sessions == len({request.session for request in requests})
