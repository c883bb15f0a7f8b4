"""The comparison with vLLM's own connectors: fair, repeatable, and able to fail."""

import importlib
import random
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("vllm")

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HOST_BYTES = 4 * 2**30


@pytest.fixture(scope="module")
def bench():
    """The benchmark's modules by name; they import each other as scripts do."""
    sys.path.insert(0, str(BENCHMARKS))
    try:
        names = ("workload", "rig", "compare", "causes", "hits")
        yield {n: importlib.import_module(f"native_{n}") for n in names}
    finally:
        sys.path.remove(str(BENCHMARKS))


def planned(bench: Any, layout: Any, tokens: list[int], request_id: str) -> Any:
    """A request for these tokens and a short answer."""
    answer = (1, 2)
    return bench["workload"].Planned(
        request_id=request_id,
        prompt=tuple(tokens),
        answer=answer,
        salt=0,
        kind="repeat",
        hashes=bench["rig"].hasher_of(layout)([*tokens, *answer], 0),
        hash_tokens=layout.hash_block_tokens,
    )


@pytest.mark.parametrize("name", ["gpt-oss-20b", "qwen3-next", "deepseek-v4-flash"])
def test_plain_repeat_hits_in_all_three(bench, name):
    """A prompt is computed, comes back to an empty device, and each connector helps."""
    rig = bench["rig"]
    layout = bench["compare"].Comparison(name).layout
    tokens = random.Random(0).choices(range(100), k=layout.prompt_tokens)
    for candidate in (rig.CELLAR, rig.SIMPLE, rig.OFFLOADING):
        engine = rig.Engine(layout, candidate, HOST_BYTES)
        first = engine.serve(planned(bench, layout, tokens, "first"))
        again = engine.serve(planned(bench, layout, tokens, "again"))
        assert 0 == first.tokens == first.promised, candidate.name
        assert layout.prompt_tokens // 2 < again.tokens < layout.prompt_tokens
        assert again.tokens <= again.promised, candidate.name


def test_other_salt_hits_in_none(bench):
    """Equal tokens under another salt are another prefix, for all three."""
    rig = bench["rig"]
    layout = bench["compare"].Comparison("llama-3.1-8b").layout
    lengths = bench["workload"].Lengths(16, layout.hash_block_tokens, 200, 400)
    made = bench["workload"].WorkloadMaker(1, lengths).make(rig.hasher_of(layout))
    salted = rig.hasher_of(layout)(list(made[0].prompt), 1)
    assert salted[0] != made[0].hashes[0]
    for candidate in (rig.CELLAR, rig.SIMPLE, rig.OFFLOADING):
        engine = rig.Engine(layout, candidate, HOST_BYTES)
        engine.serve(made[0])
        other = planned(bench, layout, list(made[0].prompt), "other")
        other = bench["workload"].Planned(
            request_id="other",
            prompt=other.prompt,
            answer=other.answer,
            salt=1,
            kind="repeat",
            hashes=rig.hasher_of(layout)([*other.prompt, *other.answer], 1),
            hash_tokens=layout.hash_block_tokens,
        )
        assert 0 == engine.serve(other).tokens, candidate.name


@pytest.mark.parametrize("name", ["gpt-oss-20b", "deepseek-v3"])
def test_a_seed_replays(bench, name):
    """The same seed gives the same workload, host memory, hits and causes."""
    first, again = (bench["compare"].Comparison(name) for _ in range(2))
    for seed, host in ((3, "ample"), (8, "scarce")):
        outcome = first.run(seed, host)
        assert outcome == again.run(seed, host)
        assert not outcome.failed
        assert all(outcome.totals.values())


def test_scarce_memory_costs_hits(bench):
    """What a workload draws as scarce holds less than what it draws as ample."""
    comparison = bench["compare"].Comparison("gpt-oss-20b")
    scarce, ample = (comparison.run(2, host) for host in ("scarce", "ample"))
    assert scarce.host_bytes < ample.host_bytes
    assert scarce.num_prompt_tokens == ample.num_prompt_tokens
    for name, tokens in scarce.totals.items():
        assert tokens <= ample.totals[name], name


def test_smaller_hits_are_flagged_and_explained(bench, capsys):
    """A kvcellar that stores nothing loses, by as much as the natives found."""
    rig, compare = bench["rig"], bench["compare"]
    idle = rig.Candidate(
        "kvcellar", rig.CELLAR.connector, rig.CELLAR.module, (("max_store_tokens", 0),)
    )
    outcome = compare.Comparison("gpt-oss-20b", cellar=idle).run(3, "ample")
    best = max(outcome.totals["simple"], outcome.totals["offloading"])
    assert 0 == outcome.totals["kvcellar"]
    assert 0 < best == outcome.lost_tokens
    assert {bench["causes"].NOT_STORED} == {lost.cause for lost in outcome.lost}
    assert "seed 3: -" in "\n".join(bench["hits"].describe("gpt-oss-20b", [outcome]))
    causes = "\n".join(bench["hits"].describe_causes([outcome]))
    assert f"{len(outcome.lost):,} look-ups" in causes


def test_a_native_that_breaks_down_is_reported(bench, monkeypatch):
    """Its reason is printed, and the others are still compared."""
    compare = bench["compare"]
    serve_all = compare.Comparison._serve_all

    def broken(self, candidate, *args):
        if candidate.name == "simple":
            raise ValueError("no full attention")
        return serve_all(self, candidate, *args)

    monkeypatch.setattr(compare.Comparison, "_serve_all", broken)
    outcome = compare.Comparison("deepseek-v3").run(3, "ample")
    assert {"simple"} == set(outcome.failed)
    assert 0 == outcome.totals["simple"] < outcome.totals["kvcellar"]
    (line,) = [
        text
        for text in bench["hits"].describe_causes([outcome])
        if text.startswith("- simple: ValueError: no full attention in")
    ]
    assert line.endswith("(in 1 of 1 workloads)")


def test_command_line_prints_a_table(bench, capsys):
    """One row per kind of memory, then the causes; the exit code tells of losses."""
    arguments = ["--layout", "window-1", "--workloads", "4", "--seed", "10"]
    assert 0 == bench["hits"].main(arguments)
    printed = capsys.readouterr().out.splitlines()
    assert ["window-1", "window-1"] == [r.split("|")[1].strip() for r in printed[2:4]]
    assert "- never smaller" == printed[-1]
