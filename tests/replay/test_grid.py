"""Which cells there are, in which order, and what is refused."""

import dataclasses

import pytest
from replay_grids import MIB, SPEEDS

from kvcellar.errors import ConfigError
from kvcellar.layout.models import model_layout
from kvcellar.replay.costs import CostModel
from kvcellar.replay.grid import (
    GridAxes,
    GridModel,
    make_cells,
    serving_layout,
    sizes_of,
    words_of,
)
from kvcellar.replay.grid_choice import Choice
from kvcellar.replay.server import ServerLimits


def fixed(name="gemma-3-270m", **options):
    model = model_layout(name, **options)
    costs = CostModel(**SPEEDS)
    return GridModel(model, serving_layout(model), 512, costs, ServerLimits())


def test_cells_come_in_the_order_named():
    """Device outermost, then host, policy, mode; host memory of 0 is one cell."""
    axes = GridAxes(
        (60 * MIB, 50 * MIB), (100 * MIB, 0), modes=("lazy", "eager"), policies=("lru",)
    )
    names = [
        (
            c.device_memory_bytes // MIB,
            c.host_memory_bytes // MIB,
            c.choice.policy,
            c.choice.mode,
        )
        for c in make_cells(axes, fixed())
    ]
    assert names == [
        (60, 100, "lru", "lazy"),
        (60, 100, "lru", "eager"),
        (60, 0, None, None),
        (50, 100, "lru", "lazy"),
        (50, 100, "lru", "eager"),
        (50, 0, None, None),
    ]


def test_placements_are_an_axis():
    """Each is a cell with its own settings; not named, it is the connector's own."""
    axes = GridAxes((60 * MIB,), (100 * MIB, 0), placements=("fixed", "prompt-end"))
    found = [
        (
            c.host_memory_bytes // MIB,
            c.choice.placement,
            c.configuration.settings.placement,
        )
        for c in make_cells(axes, fixed())
    ]
    assert [
        (100, "fixed", "fixed"),
        (100, "prompt-end", "prompt-end"),
        (0, None, "geometric"),
    ] == found
    (own,) = make_cells(GridAxes((60 * MIB,), (100 * MIB,)), fixed())
    assert "geometric" == own.configuration.settings.placement


def test_memory_is_turned_into_what_one_rank_has():
    """Device memory is each GPU's; host memory is the server's, in equal parts."""
    model = fixed("llama-3.1-8b", tensor_parallel=4)
    (cell,) = make_cells(GridAxes((2**30,), (8 * 2**30,)), model)
    assert 2 * 2**30 == cell.configuration.settings.host_memory_bytes
    assert 2**30 // model.model.row_bytes == cell.configuration.num_device_rows
    (keeps_nothing,) = make_cells(GridAxes((0,), (8 * 2**30,)), model)
    assert keeps_nothing.configuration.num_device_rows is None


def test_natives_are_one_cell_each_beside_our_own_choices():
    """Policies and modes are kvcellar's; the rest is the same memory, by rank."""
    axes = GridAxes(
        (2**30,),
        (0, 8 * 2**30),
        systems=("offloading", "kvcellar", "simple"),
        policies=("lru", "s3-fifo"),
        modes=("eager", "lazy"),
    )
    none, *cells = make_cells(axes, fixed("llama-3.1-8b", tensor_parallel=2))
    assert Choice() == none.choice
    assert [Choice("offloading"), Choice("simple")] == [
        cell.choice for cell in (cells[0], cells[-1])
    ]
    assert ["kvcellar"] * 4 == [cell.choice.system for cell in cells[1:-1]]
    assert ["offloading", *["kvcellar"] * 4, "simple"] == [
        cell.configuration.system for cell in cells
    ]
    assert {4 * 2**30} == {c.configuration.settings.host_memory_bytes for c in cells}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"systems": ("kvcellar", "ours")}, "system='ours' is unknown; use some of"),
        (
            {"systems": ("simple",), "host_memory_bytes": (1000,)},
            "host memory of 1000 bytes per rank holds no block",
        ),
        ({"policies": ("fifth",)}, "eviction_policy='fifth'"),
        ({"policies": ("fifth",), "host_memory_bytes": (0,)}, "eviction_policy"),
        ({"modes": ("quick",)}, "mode='quick'"),
        ({"admissions": ("some",)}, "admission"),
        ({"placements": ("everywhere",)}, "placement='everywhere'"),
        ({"modes": ("lazy",), "device_memory_bytes": (0,)}, "mode=lazy"),
        ({"device_memory_bytes": (1000,)}, "device_memory=1000 holds no block"),
        ({"host_memory_bytes": (MIB,)}, "host memory of 1048576 bytes per rank"),
    ],
)
def test_what_cannot_be_is_refused(changes, words):
    """Before anything is played, with the key and the value."""
    axes = dataclasses.replace(GridAxes((50 * MIB,), (100 * MIB,)), **changes)
    with pytest.raises(ConfigError, match=words):
        make_cells(axes, fixed())


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("40GiB", (40 * 2**30,)),
        ("0, 1MiB,1MiB", (0, MIB)),
        ("0GiB,1kB", (0, 1000)),
        ("0.0", (0,)),
    ],
)
def test_sizes_are_read_once_each(text, sizes):
    """Nothing may be written with or without a unit."""
    assert sizes == sizes_of(text, "host_memory")


@pytest.mark.parametrize("text", ["", "1GiB,", "-1", "1 parsec", "0x", "many"])
def test_a_wrong_size_is_refused_by_its_key(text):
    """The error names what was being set."""
    with pytest.raises(ConfigError, match="host_memory"):
        sizes_of(text, "host_memory")


def test_words_named_twice_count_once():
    """And blanks around them do not matter."""
    assert ("lru", "s3-fifo") == words_of("lru, s3-fifo,lru", "policy")


def test_the_dead_state_rule_serves_where_it_holds():
    """DeepSeek-V4's compressor states take fewer blocks than its windows declare."""
    flash, plain = model_layout("deepseek-v4-flash"), model_layout("llama-3.1-8b")
    assert serving_layout(flash) == flash.without_dead_state.layout != flash.layout
    assert serving_layout(plain) == plain.layout
