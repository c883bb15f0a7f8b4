"""Engines for the tests of ``docs/trouble.md``, looked over at each test's end."""

import logging

import pytest


@pytest.fixture
def engine():
    """Make a scripted engine.

    Takes the layers' specs or a layout's name, and what ``own_layouts.plan`` takes.
    ``extra`` are the connector's settings; host memory is 64 MiB unless they differ.
    """
    pytest.importorskip("vllm")
    from own_layouts import keep_every_state, plan
    from scripted import Scripted

    from kvcellar.testing.oracle.layouts import build
    from kvcellar.testing.oracle.layouts.ranks import RankShape

    made = []

    def make(layers, *, extra=None, dense=False, num_ranks=1, num_replicas=1, **limits):
        limits["extra_config"] = {"host_memory": "64MiB"} | (extra or {})
        limits["ranks"] = RankShape(tensor=num_ranks)
        if isinstance(layers, str):
            layout = build(layers, **limits)
        else:
            layout = plan(layers, **limits)
        parallel = layout.vllm_config.parallel_config
        parallel.data_parallel_size = num_replicas
        parallel.data_parallel_size_local = num_replicas
        made.append(Scripted(keep_every_state(layout) if dense else layout))
        return made[-1]

    logging.disable(logging.INFO)
    yield make
    logging.disable(logging.NOTSET)
    for one in made:
        if not one._live:
            one.finish()  # raises if anything stays held
        one.close()
