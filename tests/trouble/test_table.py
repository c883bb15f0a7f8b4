"""``docs/trouble.md`` and the tests beside this file say the same."""

import ast
import re
from pathlib import Path

from kvcellar.doctor.checks import ALL_CHECKS

FOLDER = Path(__file__).parent
CONFUSIONS = FOLDER.parent / "doctor" / "test_confusions.py"
NUM_CONFUSIONS = 18
TABLE = Path(__file__).parents[2] / "docs" / "trouble.md"
NUM_THREADS = 87
ROW = re.compile(r"\| ([\w.-]+/[\w.-]+#\d+) \| ([^|]+) \| ([^|]+) \|")
TEST = re.compile(r"`(test_\w+)`( \(known gap\))?")


def rows():
    """(thread, kind of fault, last cell) of the table."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return [match.groups() for line in lines if (match := ROW.fullmatch(line))]


def named_tests():
    """Test name to (thread, whether it is a known gap), as the table says."""
    return {
        name: (thread, bool(gap))
        for thread, _, cell in rows()
        for name, gap in TEST.findall(cell)
    }


def written_tests():
    """Test name to whether it is expected to fail, as the files say."""
    found = {}
    for path in FOLDER.glob("test_*.py"):
        if path == Path(__file__):
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                assert node.name not in found, f"{node.name} stands in two files"
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                found[node.name] = any("xfail" in mark for mark in marks)
    return found


def test_every_thread_has_one_row():
    """As many rows as threads, each thread once, and no cell is empty."""
    threads = [thread for thread, _, _ in rows()]
    assert NUM_THREADS == len(threads) == len(set(threads))
    assert all(cell.strip() for row in rows() for cell in row)


def test_every_row_has_a_test_or_a_reason():
    """A row without a test begins its reason with "not yet" or "not here"."""
    without = [cell for _, _, cell in rows() if not TEST.search(cell)]
    assert [] == [c for c in without if not c.startswith(("not yet: ", "not here: "))]


def test_table_and_files_name_the_same_tests():
    """Every test named exists, every test that exists is named, gaps are marked."""
    named = {name: is_gap for name, (_, is_gap) in named_tests().items()}
    assert written_tests() == named


def test_tests_carry_their_threads_number():
    """A test's name holds the number of the row that it stands in."""
    wrong = [
        (name, thread)
        for name, (thread, _) in named_tests().items()
        if thread.rpartition("#")[2] not in name.split("_")
    ]
    assert [] == wrong


def confusions():
    """(threads, checks, tests) of each row of the second table, as lists."""
    _, _, second = TABLE.read_text(encoding="utf-8").partition("\n## ")
    cells = [line.strip("| ").split(" | ") for line in second.splitlines()]
    name = re.compile(r"`([\w-]+)`")
    return [
        (threads.split(", "), name.findall(checks), name.findall(tests))
        for _, threads, checks, tests in (row for row in cells if len(row) == 4)
        if "`" in tests
    ]


def confusion_tests():
    """Docstrings of the tests of the doctor's checks for these rows, by name."""
    tree = ast.parse(CONFUSIONS.read_text(encoding="utf-8"))
    return {
        node.name: ast.get_docstring(node)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def test_every_confusion_is_a_check():
    """Each row names checks of the doctor that exist."""
    known = {check.name for check in ALL_CHECKS}
    assert NUM_CONFUSIONS == len(confusions())
    assert all(checks and set(checks) <= known for _, checks, _ in confusions())


def test_every_confusion_has_its_tests():
    """The second table and the doctor's file of confusions name the same tests."""
    named = [test for _, _, tests in confusions() for test in tests]
    assert sorted(named) == sorted(confusion_tests())


def test_tests_of_confusions_name_their_threads():
    """Every thread of a row stands in a docstring of its tests, by its number."""
    written = confusion_tests()
    for threads, _, tests in confusions():
        told = " ".join(written[test] for test in tests)
        assert [] == [t for t in threads if f"#{t.partition('#')[2]}" not in told]
