"""The plan as text: what to know first, then what to run, then where it comes from."""

from collections.abc import Iterable, Iterator

from kvcellar.plan.figures import Figures
from kvcellar.plan.plan import Plan
from kvcellar.plan.report import sections
from kvcellar.plan.report.fits import fits, fits_title
from kvcellar.plan.report.table import wrapped
from kvcellar.plan.timing import Timing
from kvcellar.plan.words import count, duration, size

WIDTH = 100


def text_of(plan: Plan, width: int = WIDTH) -> str:
    """All sections; commands, tables and log lines are never broken.

    Args:
        width: characters after which sentences go on in the next line.
    """
    figures = plan.figures
    blocks = (
        _title(figures),
        wrapped(_headline(figures), width, "", ""),
        "\n".join(_findings(plan, width)),
        _section("run it", _commands(plan)),
        _prose(fits_title(figures), fits(figures), width),
        _prose("how it multiplies", plan.products, width),
        _prose("hits", sections.hits(figures), width),
        _prose("load or recompute", sections.times(figures.timing), width),
        _prose("eager or lazy", sections.modes(figures), width),
        _section("cache groups, one rank", sections.groups(figures, width)),
        _section("the server's log will say", sections.log(figures)),
        _prose("notes", plan.notes, width),
    )
    return "\n\n".join(block for block in blocks if block)


def _section(title: str, lines: Iterable[str]) -> str:
    return "\n".join([title, *(f"  {line}" for line in lines)])


def _prose(title: str, sentences: Iterable[str], width: int) -> str:
    lines = [_line(sentence, width) for sentence in sentences]
    return "\n".join([title, *lines]) if lines else ""


def _line(text: str, width: int) -> str:
    """As it is, blanks included, if it fits; else wrapped."""
    line = f"  {text}"
    return line if len(line) <= width else wrapped(text, width)


def _title(figures: Figures) -> str:
    shape = figures.shape
    parallel = [
        f"{name} {number}"
        for name, number in (
            ("tensor", shape.tensor_parallel),
            ("pipeline", shape.pipeline_parallel),
        )
        if number > 1
    ]
    spread = f" ({' x '.join(parallel)} parallel)" if parallel else ""
    if shape.data_parallel > 1:
        spread += f" x {count(shape.data_parallel, 'replica')}"
    return (
        f"kvcellar plan: {figures.model.name}, {figures.model.cache_dtype} cache, "
        f"{count(shape.ranks_per_server, 'GPU')}{spread}"
    )


def _headline(figures: Figures) -> str:
    host, shape = figures.host, figures.shape
    memory = size(host.asked_bytes_per_server)
    each = " for each replica" if shape.data_parallel > 1 else ""
    if not host.num_prompts:
        return (
            f"{memory} of host memory{each} holds no whole prompt of "
            f"{host.prompt_tokens:,} tokens."
        )
    return (
        f"{memory} of host memory{each} keeps {count(host.num_prompts, 'prompt')} of "
        f"{host.prompt_tokens:,} tokens ready{_gain(figures.timing)}."
    )


def _gain(timing: Timing | None) -> str:
    if timing is None or not timing.resumed_tokens:
        return ""
    source = "at assumed" if "preset" in timing.sources.values() else "at your"
    return (
        f"; one that returns starts to answer after {duration(timing.resumed_seconds)} "
        f"instead of {duration(timing.recompute_seconds)} ({source} speeds)"
    )


def _findings(plan: Plan, width: int) -> Iterator[str]:
    for finding in plan.findings:
        yield wrapped(f"{finding.what}.", width, "! ", "  ")
        yield wrapped(f"{finding.remedy}.", width, "  -> ", "     ")


def _commands(plan: Plan) -> Iterator[str]:
    if plan.commands.kvcellar_serve is not None:
        yield plan.commands.kvcellar_serve
        yield "or, the same:"
    yield plan.commands.vllm_serve
