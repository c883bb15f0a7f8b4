"""Runs of repeated chunks say exactly who used each chunk last."""

from array import array

from hypothesis import given
from hypothesis import strategies as st

from kvcellar.replay.offline.farthest import most_chunks_found
from kvcellar.replay.offline.uses import uses_of
from kvcellar.replay.trace import Trace, TraceRequest

SHORT = st.lists(st.integers(0, 1), max_size=6)


def trace_of(prompts):
    """Requests of prompt and answer blocks of 4 tokens, equal prefixes equal ids."""
    ids, requests = {}, []
    for number, (prompt, answer, more) in enumerate(prompts):
        whole = (*prompt, *answer)
        named = [
            ids.setdefault(whole[: end + 1], len(ids)) for end in range(len(whole))
        ]
        requests.append(
            TraceRequest(
                float(number),
                len(prompt) * 4 + more,
                len(answer) * 4,
                array("q", named[: len(prompt)]),
                array("q", named[len(prompt) :]),
            )
        )
    return Trace(4, requests)


def expanded(uses):
    """(later, earlier) of each repeated chunk."""
    rows = zip(uses.later, uses.earlier, uses.num_chunks, strict=True)
    return [(int(k), int(p)) for k, p, n in rows for _ in range(n)]


@given(st.lists(st.tuples(SHORT, SHORT, st.integers(0, 3)), max_size=8))
def test_runs_are_what_every_chunk_by_itself_tells(prompts):
    """Answers count as used and not as wanted; the last token is never wanted."""
    trace, last_user, found = trace_of(prompts), {}, []
    for number, request in enumerate(trace.requests):
        wanted = max(request.num_prompt_tokens - 1, 0) // 4
        path = [*request.blocks, *request.output_blocks]
        for place, block in enumerate(path):
            if block in last_user and place < wanted:
                found.append((number, last_user[block]))
        last_user |= dict.fromkeys(path, number)
    uses = uses_of(trace, 4, lambda _: True)
    assert found == expanded(uses)
    assert (uses.num_chunks > 0).all()
    assert len(trace.requests) == uses.num_requests


def test_neighbouring_runs_of_one_user_are_one():
    """However often the path was cut by others before."""
    prompts = [([0] * 6, [], 1), ([0, 0, 1], [], 1), ([0] * 4 + [1], [], 1)]
    uses = uses_of(trace_of([*prompts, ([0] * 6, [], 1)]), 4, lambda _: True)
    last = [
        (int(p), int(n))
        for k, p, n in zip(uses.later, uses.earlier, uses.num_chunks, strict=True)
        if k == 3
    ]
    assert [(2, 4), (0, 2)] == last


def test_requests_that_are_not_served_are_left_out():
    """They use nothing, want nothing and have no number."""
    prompts = [([0, 0], [], 1), ([1, 1, 1], [], 1), ([0, 0], [], 1)]
    uses = uses_of(trace_of(prompts), 4, lambda r: r.num_prompt_tokens < 10)
    assert [(1, 0), (1, 0)] == expanded(uses)
    assert (2, 18) == (uses.num_requests, uses.prompt_tokens)


def test_the_farthest_next_use_goes_first():
    """Of three prompts the one that comes back last, and of it the end."""
    prompts = [([kind] * 2, [], 1) for kind in (0, 1, 2, 0, 1, 2)]
    uses = uses_of(trace_of(prompts), 4, lambda _: True)
    assert [0, 2, 3, 4, 5, 6] == [
        most_chunks_found(uses, slots) for slots in (0, 2, 3, 4, 5, 6)
    ]
