"""What the figures stand on, in sentences."""

from kvcellar.replay.costs import CostModel
from kvcellar.replay.grid_choice import NATIVES
from kvcellar.replay.presets import COMPUTE_SHARE, LINK_SHARE, MEMORY_SHARE
from kvcellar.replay.report.setting import Setting


def assumptions_of(setting: Setting) -> tuple[str, ...]:
    """All of them, the most important first."""
    return (
        *_server(setting),
        *_natives(setting),
        *_speed(setting),
        *_trace(setting),
        *_memory(setting),
    )


def _server(setting: Setting) -> tuple[str, ...]:
    limits = setting.model.limits
    return (
        "Decisions about host memory are made by the code that serves; the device, "
        "its queue and time are simulated.",
        "Requests are served in the order of arrival. Prefills run one after another, "
        f"in steps of at most {limits.step_tokens:,} tokens; answers run beside them, "
        f"take a fixed time per token and slow nothing down; at most "
        f"{limits.max_num_seqs:,} requests run at once.",
        "A request takes room for its whole answer when it is admitted, so nothing is "
        "preempted.",
        "Of windows and recurrent state the device keeps what resuming at a prompt's "
        "end reads, and where it left a known path, as vLLM does unless told "
        "otherwise.",
    )


def _natives(setting: Setting) -> tuple[str, ...]:
    if not set(setting.systems) & set(NATIVES):
        return ()
    return (
        "vLLM's own connectors are models with default settings: they keep a whole "
        "block of the engine's pool for every block of every group, store eagerly "
        "what the device's prefix cache keeps, and what they store is found at once. "
        "Which of their evictions were dead weight is not known.",
    )


def _speed(setting: Setting) -> tuple[str, ...]:
    chosen = setting.costs
    if chosen.is_timeless:
        return (
            "Nothing takes time: every request ends before the next one comes, so "
            "there are hits but no waiting times.",
        )
    sentences = [_speeds(chosen.costs)]
    assumed = [name for name, source in chosen.sources.items() if source == "preset"]
    if assumed:
        sentences.append(
            f"Assumed, not measured: {', '.join(assumed)}"
            f"{f' ({chosen.preset})' if chosen.preset else ''}."
        )
    if chosen.preset:
        sentences.append(
            f"The preset takes {COMPUTE_SHARE:.0%} of the GPU's dense bfloat16 peak at "
            "2 operations per parameter and token, "
            f"{MEMORY_SHARE:.0%} of its memory's speed at 2 bytes per parameter, "
            f"{LINK_SHARE:.0%} of its PCIe link in each direction, and 5 ms per step. "
            "It leaves out attention's own work, which grows with the prompt."
        )
    return tuple(sentences)


def _speeds(costs: CostModel) -> str:
    return (
        f"Prompts are computed at {costs.prefill_tokens_per_second:,.0f} tokens/s plus "
        f"{costs.step_seconds * 1e3:.1f} ms per step, answers take "
        f"{costs.decode_seconds_per_token * 1e3:.1f} ms per token, and each GPU loads "
        f"{costs.load_bytes_per_second / 1e9:.1f} GB/s and stores "
        f"{costs.store_bytes_per_second / 1e9:.1f} GB/s."
    )


def _trace(setting: Setting) -> tuple[str, ...]:
    return (_resume_points(setting), _answers(setting), *_arrivals(setting))


def _resume_points(setting: Setting) -> str:
    unit, own = setting.model.unit_tokens, setting.model.model.layout.chunk_tokens
    block = setting.facts.block_tokens
    if unit == own:
        return (
            f"Prompts are resumed at multiples of {unit} tokens, the model's own; the "
            f"trace tells prompts apart every {block} tokens."
        )
    return (
        f"The trace tells prompts apart every {block} tokens only, so they are "
        f"resumed at multiples of {unit} tokens; the engine can at multiples of {own}, "
        "and finds a little more."
    )


def _answers(setting: Setting) -> str:
    known, total = setting.facts.num_known_answers, setting.facts.num_requests
    if known == 0:
        return (
            "The trace does not tell what answers hold, so their blocks are stored but "
            "no later prompt can find them; in a conversation the engine would."
        )
    return (
        f"The trace names blocks of {known:,} of {total:,} answers; those of the "
        "others are found by no later prompt."
    )


def _arrivals(setting: Setting) -> list[str]:
    sentences = []
    jitter = setting.arrivals.jitter_seconds
    if jitter is not None:
        sentences.append(
            f"Requests that share a time stamp are spread over {jitter:g} s, uniformly "
            f"with seed {setting.arrivals.seed}."
        )
    if setting.speed != 1.0:
        sentences.append(f"Requests arrive {setting.speed:g} times as fast.")
    if setting.limit is not None:
        sentences.append(f"Only the first {setting.limit:,} requests are played.")
    if setting.tokenizer is not None:
        sentences.append(f"Texts are cut into tokens by {setting.tokenizer}.")
    return sentences


def _memory(setting: Setting) -> tuple[str, ...]:
    model, num_gpus = setting.model.model, setting.num_gpus
    dead = (
        "Compressors' states that no resumed layer reads are not stored (dead_state).",
    ) * (setting.model.host_layout != model.layout)
    return (
        *dead,
        "Device memory is the KV cache's part of each GPU's memory, "
        f"{model.row_bytes:,} bytes per block; host memory is the whole server's, in "
        f"equal parts for its {num_gpus} GPU{'s' if num_gpus > 1 else ''}.",
        "Without host memory the engine's own prefix cache on the device is all there "
        "is.",
    )
