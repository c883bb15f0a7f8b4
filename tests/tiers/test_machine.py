"""The pre-flight check of host memory."""

from pathlib import Path

import pytest

from kvcellar.errors import ConfigError
from kvcellar.tiers.machine import (
    MachineMemory,
    check_fits,
    control_group_paths,
    control_group_room,
    parse_meminfo,
    read_machine,
)

GIB = 2**30
MEMINFO = "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n"
MACHINE = MachineMemory(32 * GIB, 16 * GIB, 12 * GIB, 10 * GIB)


def test_meminfo_is_read_in_bytes() -> None:
    """The kernel writes kB; total and available come back in bytes."""
    assert (32 * GIB, 16 * GIB) == parse_meminfo(MEMINFO)


@pytest.mark.parametrize("text", ["", "MemTotal: 5 kB\n", "MemTotal:\nMemAvailable:\n"])
def test_unreadable_meminfo_is_refused(text: str) -> None:
    """A file without the two numbers is an error, not a guess."""
    with pytest.raises(ConfigError, match="MemTotal and MemAvailable"):
        parse_meminfo(text)


def test_version_2_group_and_all_its_ancestors_apply() -> None:
    """A limit on any ancestor, up to the mount's root, is looked for."""
    assert [
        "sys/fs/cgroup/pod/box",
        "sys/fs/cgroup/pod",
        "sys/fs/cgroup",
    ] == control_group_paths("0::/pod/box\n")


def test_version_1_uses_the_memory_hierarchy_only() -> None:
    """Other controllers' paths say nothing about memory."""
    text = "5:cpu,cpuacct:/a\n4:memory:/b\n1:name=systemd:/c\n"
    assert [
        "sys/fs/cgroup/memory/b",
        "sys/fs/cgroup/memory",
    ] == control_group_paths(text)


def test_group_room_counts_reclaimable_file_cache_as_free() -> None:
    """Inactive file pages under the limit can be had back."""
    stat = "anon 7\ninactive_file 30\n"
    assert (100, 50) == control_group_room("100\n", "80\n", stat)


def test_version_1_stat_includes_children() -> None:
    """The hierarchical total wins over the group's own number."""
    stat = "inactive_file 1\ntotal_inactive_file 30\n"
    assert (100, 50) == control_group_room("100\n", "80\n", stat)


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", ""])
def test_no_limit_is_none(limit: str) -> None:
    """Version 2's word and version 1's huge number both mean no limit."""
    assert control_group_room(limit, "80\n", "") is None


def test_group_over_its_limit_has_no_room() -> None:
    """Room is never negative."""
    assert (100, 0) == control_group_room("100", "120", "")


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_tightest_group_of_a_version_2_machine_counts(tmp_path: Path) -> None:
    """The parent's limit is tighter than the group's own and is the one reported."""
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "0::/pod/box\n",
            "sys/fs/cgroup/pod/memory.max": "1000\n",
            "sys/fs/cgroup/pod/memory.current": "900\n",
            "sys/fs/cgroup/pod/box/memory.max": "max\n",
        },
    )
    expected = MachineMemory(32 * GIB, 16 * GIB, 1000, 100)
    assert expected == read_machine(tmp_path)


def test_version_1_limit_is_found_at_the_mount_of_a_container(tmp_path: Path) -> None:
    """The host's path does not exist inside, but the root is the container's group."""
    _write(
        tmp_path,
        {
            "proc/meminfo": MEMINFO,
            "proc/self/cgroup": "4:memory:/docker/abc\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000\n",
            "sys/fs/cgroup/memory/memory.usage_in_bytes": "1000\n",
            "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 500\n",
        },
    )
    expected = MachineMemory(32 * GIB, 16 * GIB, 5000, 4500)
    assert expected == read_machine(tmp_path)


def test_machine_without_control_groups_has_no_limit(tmp_path: Path) -> None:
    """Missing files are no limit, not an error."""
    _write(tmp_path, {"proc/meminfo": MEMINFO})
    assert MachineMemory(32 * GIB, 16 * GIB) == read_machine(tmp_path)


def test_machine_without_meminfo_is_refused(tmp_path: Path) -> None:
    """Without the kernel's numbers there is nothing to check against."""
    with pytest.raises(ConfigError, match="cannot be read"):
        read_machine(tmp_path)


def test_this_machine_can_be_read() -> None:
    """The real files of the machine that runs the tests parse."""
    machine = read_machine()
    assert 0 < machine.available_bytes <= machine.total_bytes


@pytest.mark.parametrize("num_bytes", [0, -1])
def test_sizes_that_are_not_positive_are_refused(num_bytes: int) -> None:
    """Zero and negative sizes are named and answered with what to write."""
    with pytest.raises(ConfigError, match=rf"of {num_bytes} bytes .* above zero"):
        check_fits(num_bytes, MACHINE)


@pytest.mark.parametrize(
    ("machine", "where", "there"),
    [
        (MACHINE, "memory limit of this process's control group", "12.00 GiB"),
        (MachineMemory(32 * GIB, 16 * GIB), "available on this machine", "16.00 GiB"),
        (MachineMemory(19 * GIB, 16 * GIB), "memory of this machine", "19.00 GiB"),
        (MachineMemory(32 * GIB, 30 * GIB, 25 * GIB, 10 * GIB), "left", "10.00 GiB"),
    ],
)
def test_more_than_there_is_names_both_numbers(
    machine: MachineMemory, where: str, there: str
) -> None:
    """The message has what was asked for, what bounds it, and what to do."""
    with pytest.raises(ConfigError) as caught:
        check_fits(20 * GIB, machine)
    message = str(caught.value)
    assert ["20.00 GiB", where, there, "lower host_memory"] == [
        part
        for part in ["20.00 GiB", where, there, "lower host_memory"]
        if part in message
    ]


def test_all_ranks_of_the_machine_count_together() -> None:
    """Two ranks whose shares fit one by one do not fit together."""
    check_fits(6 * GIB, MACHINE)
    with pytest.raises(ConfigError, match=r"12\.00 GiB\) in all for the ranks on"):
        check_fits(6 * GIB, MACHINE, 12 * GIB)


def test_exactly_what_is_left_fits() -> None:
    """The bound itself is allowed."""
    check_fits(10 * GIB, MACHINE)
