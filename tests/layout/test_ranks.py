"""One cut of host memory for ranks that hold different bytes."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from layouts import layout_of_bytes

from kvcellar.config import HostBudget
from kvcellar.errors import ConfigError, IncompatibleError
from kvcellar.layout.cut import MAX_SLAB_WASTE, MIN_SLABS_PER_CLASS
from kvcellar.layout.groups import CacheLayout
from kvcellar.layout.host import plan_geometry
from kvcellar.layout.ranks import (
    RanksGeometry,
    cut_ranks,
    rank_layout,
    server_layout,
)


@st.composite
def tables(draw: st.DrawFn) -> list[CacheLayout]:
    """Ranks with the same groups and other bytes; every group is somewhere."""
    num_groups, num_ranks = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    size = st.integers(0, 3000)
    ranks = [
        draw(st.lists(size, min_size=num_groups, max_size=num_groups))
        for _ in range(num_ranks)
    ]
    for group in range(num_groups):
        if not any(rank[group] for rank in ranks):
            ranks[draw(st.integers(0, num_ranks - 1))][group] = draw(
                st.integers(1, 3000)
            )
    return [layout_of_bytes(*payloads) for payloads in ranks]


budgets = st.builds(HostBudget, st.integers(200_000, 10**8), st.booleans())


def mapped(geometry: RanksGeometry) -> list[int]:
    """Bytes that each rank maps."""
    return [rank.arena_bytes for rank in geometry.ranks]


@given(tables(), budgets)
def test_all_ranks_count_alike_and_take_no_more_than_there_is(
    ranks: list[CacheLayout], budget: HostBudget
) -> None:
    """Same slabs, classes and cells; every cell inside its slab, on every rank."""
    geometry = cut_ranks(ranks, budget)
    asked = mapped(geometry)
    total = max(asked) if budget.is_per_rank else sum(asked)
    assert total <= budget.num_bytes
    for layout, own in zip(ranks, geometry.ranks, strict=True):
        for position, class_id in enumerate(own.class_of):
            size_class = own.classes[class_id]
            assert layout.cell_bytes(position) == size_class.cell_bytes
            used = size_class.cells_per_slab * size_class.cell_bytes
            assert used <= own.slab_bytes
        for name in ("num_slabs", "class_of", "blocks_per_cell"):
            assert getattr(geometry.server, name) == getattr(own, name)
        assert [c.cells_per_slab for c in geometry.server.classes] == [
            c.cells_per_slab for c in own.classes
        ]
    assert geometry.server.num_slabs >= len(geometry.server.classes)


@given(tables(), budgets)
def test_the_servers_bytes_are_those_of_its_ranks(
    ranks: list[CacheLayout], budget: HostBudget
) -> None:
    """Cells, slabs and arena add up, so that figures are the whole server's."""
    geometry = cut_ranks(ranks, budget)
    server = geometry.server
    assert sum(mapped(geometry)) == server.arena_bytes
    for number, size_class in enumerate(server.classes):
        own = [rank.classes[number].cell_bytes for rank in geometry.ranks]
        assert sum(own) == size_class.cell_bytes


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=5),
    st.integers(1, 8),
    st.integers(100_000, 10**8),
)
def test_equal_ranks_are_cut_as_one_rank_is(
    payloads: list[int], num_ranks: int, share: int
) -> None:
    """Whether a share is given for each or all together: as plans always said."""
    layout = layout_of_bytes(*payloads)
    alone = plan_geometry(layout, share)
    left = num_ranks - 1  # too little for another byte on each
    for budget in (
        HostBudget(num_ranks * share + left),
        HostBudget(share, is_per_rank=True),
    ):
        geometry = cut_ranks([layout] * num_ranks, budget)
        assert (alone,) * num_ranks == geometry.ranks
        assert geometry.are_even


@given(tables(), st.booleans(), st.data())
def test_ranks_waste_no_more_than_they_must(
    ranks: list[CacheLayout], is_per_rank: bool, data: st.DataObject
) -> None:
    """No other numbers of cells per slab would waste less, but for half a percent.

    The best of random ones are tried, of slabs as large.
    """
    geometry = cut_ranks(ranks, HostBudget(10**9, is_per_rank))
    classes = [
        tuple(rank.classes[k].cell_bytes for rank in geometry.ranks)
        for k in range(len(geometry.server.classes))
    ]
    counted = max if is_per_rank else sum

    def waste(cells: list[int]) -> float:
        sizes = list(zip(*classes, strict=True))
        slab = counted(
            max(n * size for n, size in zip(cells, one, strict=True)) for one in sizes
        )
        weights = [counted(one) for one in classes]
        return 1 - min(n * w for n, w in zip(cells, weights, strict=True)) / slab

    ours = waste([c.cells_per_slab for c in geometry.server.classes])
    other = data.draw(
        st.lists(st.integers(1, 400), min_size=len(classes), max_size=len(classes))
    )
    assert ours <= waste(other) + MAX_SLAB_WASTE + 1e-9


def test_a_rank_with_more_bytes_gets_more_of_a_shared_memory() -> None:
    """Twice the layers, twice the memory, and as many cells on both."""
    geometry = cut_ranks(
        [layout_of_bytes(100, 50), layout_of_bytes(200, 100)], HostBudget(3 * 10**6)
    )
    first, second = mapped(geometry)
    assert 2 * first == second
    assert 0.99 * 3 * 10**6 < first + second <= 3 * 10**6


def test_the_fullest_rank_decides_where_each_has_its_own_memory() -> None:
    """The other one leaves half of its memory alone."""
    budget = HostBudget(10**6, is_per_rank=True)
    geometry = cut_ranks([layout_of_bytes(100, 50), layout_of_bytes(200, 100)], budget)
    first, second = mapped(geometry)
    assert 2 * first == second
    assert 0.99 * 10**6 < second <= 10**6


def test_a_group_that_a_rank_lacks_costs_it_nothing() -> None:
    """Stage 0 has full layers only: each of its slabs still counts cells of both."""
    ranks = [layout_of_bytes(300, 0), layout_of_bytes(100, 400)]
    geometry = cut_ranks(ranks, HostBudget(10**7))
    full, window = (geometry.server.class_of[p] for p in (0, 1))
    first = geometry.ranks[0]
    assert (300, 0) == (
        first.classes[full].cell_bytes,
        first.classes[window].cell_bytes,
    )
    assert (
        first.cell_offset(1, 5) % first.slab_bytes == 0
    )  # all in one place, of no size
    assert geometry.server.num_slabs >= 2 * MIN_SLABS_PER_CLASS


def test_a_rank_with_nothing_to_keep_maps_next_to_nothing() -> None:
    """Its stage has scratch layers only: a byte per slab, since no memory is empty."""
    geometry = cut_ranks(
        [layout_of_bytes(300, 200), layout_of_bytes(0, 0)], HostBudget(10**7)
    )
    first, second = mapped(geometry)
    assert geometry.server.num_slabs == second < first / 1000


def test_groups_share_a_class_only_if_their_cells_are_equal_on_every_rank() -> None:
    """Equal on rank 0 is not enough, and equal sums are not either."""
    ranks = [layout_of_bytes(100, 100, 50), layout_of_bytes(100, 50, 100)]
    assert 3 == len(cut_ranks(ranks, HostBudget(10**6)).server.classes)
    alike = [layout_of_bytes(100, 100, 50), layout_of_bytes(70, 70, 100)]
    geometry = cut_ranks(alike, HostBudget(10**6))
    assert geometry.server.class_of[0] == geometry.server.class_of[1]
    assert 2 == len(geometry.server.classes)


def test_too_little_for_all_ranks_is_refused_with_the_need() -> None:
    """Two sizes of cells: the need is a slab of each, on all ranks together."""
    ranks = [layout_of_bytes(100, 50), layout_of_bytes(200, 100)]
    with pytest.raises(
        ConfigError, match=r"599 bytes for 2 rank\(s\) is too small.*600"
    ):
        cut_ranks(ranks, HostBudget(599))
    assert 2 == cut_ranks(ranks, HostBudget(600)).server.num_slabs


def test_a_group_without_a_byte_anywhere_is_refused() -> None:
    """Nobody could store it."""
    with pytest.raises(IncompatibleError, match="group 1 holds no bytes on any of 2"):
        cut_ranks([layout_of_bytes(100, 0), layout_of_bytes(50, 0)], HostBudget(10**6))


def test_the_servers_layout_adds_up_bytes_and_counts_a_stages_layers_once() -> None:
    """Two stages of two tensor ranks: bytes of all four, layers of two."""
    stages = [layout_of_bytes(100, 0), layout_of_bytes(40, 60)]
    server = server_layout([stages[0]] * 2 + [stages[1]] * 2, ranks_per_stage=2)
    assert [280, 120] == [group.payload_bytes for group in server.groups]
    assert [280, 120] == [group.padded_bytes for group in server.groups]
    assert [2, 1] == [group.num_layers for group in server.groups]


def test_a_ranks_layout_is_the_servers_with_its_own_bytes() -> None:
    """Spans that were cut for all are cut on each."""
    own = [layout_of_bytes(100, 0), layout_of_bytes(40, 60)]
    server = server_layout(own)
    cut = dataclasses.replace(server.groups[1], span_tokens=5)
    server = dataclasses.replace(server, groups=(server.groups[0], cut))
    found = rank_layout(server, own[0])
    assert [(100, None), (0, 5)] == [
        (group.payload_bytes, group.span_tokens) for group in found.groups
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"chunk_tokens": 32}, "rank 1 works with chunk_tokens=32 and rank 0 with 16"),
        ({"groups": ()}, "rank 1 sees 0 cache groups and rank 0 2"),
    ],
)
def test_ranks_with_other_units_are_refused(
    change: dict[str, object], told: str
) -> None:
    """Which rank, which unit, which numbers."""
    first = layout_of_bytes(100, 50)
    other = dataclasses.replace(first, **change)  # type: ignore[arg-type]  # by name
    with pytest.raises(IncompatibleError, match=told):
        server_layout([first, other])


def test_ranks_that_see_another_group_are_refused() -> None:
    """Which rank, which group, and what both take it for."""
    first = layout_of_bytes(100, 50)
    wide = dataclasses.replace(first.groups[1], span_tokens=128)
    other = dataclasses.replace(first, groups=(first.groups[0], wide))
    with pytest.raises(
        IncompatibleError,
        match="rank 1 sees window group 1 of 128 tokens with blocks of 16 tokens where "
        "rank 0 sees window group 1 of 64 tokens",
    ):
        server_layout([first, other])


@given(
    st.lists(st.tuples(*[st.integers(1, 9)] * 2), min_size=1, max_size=3),
    st.integers(1, 4),
    st.booleans(),
)
def test_ranks_that_share_are_cut_like_one_with_all_their_memory(
    stages, num_sharing, is_per_rank
):
    """Their bytes are there once, so they hold as much as their memory together."""
    alone = [layout_of_bytes(*payloads) for payloads in stages]
    ranks = [layout for layout in alone for _ in range(num_sharing)]
    budget = HostBudget(40_000, is_per_rank=is_per_rank)
    times = num_sharing if is_per_rank else 1
    whole = HostBudget(40_000 * times, is_per_rank=is_per_rank)
    shared = cut_ranks(ranks, budget, num_sharing)
    expected = cut_ranks(alone, whole)
    assert expected.ranks == shared.arenas == shared.ranks[::num_sharing]
    assert expected.server == shared.server
    assert len(shared.ranks) == len(ranks)
