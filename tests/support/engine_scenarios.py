"""What the real-engine tests run in a process of their own; figures as JSON on stdout.

    python tests/support/engine_scenarios.py SCENARIO MODEL MODE

vLLM keeps global state and warns at import, so no test process holds an engine.
"""

import dataclasses
import json
import os
import random
import sys
import tempfile
from pathlib import Path

SOURCE = Path(random.__file__).read_text() + Path(tempfile.__file__).read_text()
BLOCK_TOKENS = {"gemma3": 32, "llama4": 128, "llama": 32, "qwen3-next": 256}
# Two or three prompts.
NUM_DEVICE_BLOCKS = {"gemma3": 250, "llama4": 70, "llama": 150, "qwen3-next": 40}
# Lazy mode looks two steps ahead: with small steps most of the device is behind that.
SMALL_STEPS = {"max_num_seqs": 1, "max_num_batched_tokens": 256}
FEW_THREATENED = {
    "gemma3": SMALL_STEPS,
    "qwen3-next": SMALL_STEPS | {"num_gpu_blocks_override": 64},
}
STATE_DTYPE = "float32"  # else vLLM's CPU platform decides it by the processor's type
SMALL_HOST_MEMORY = {"gemma3": "12MiB", "qwen3-next": "16MiB"}  # some ten prompts
PROMPT_CHARACTERS = 1700  # a token each (byte-level tokenizer); inside a local chunk


class Engine:
    """vLLM in this process, with a device cache of about three prompts."""

    def __init__(self, model, mode, host_memory="256MiB", **options):
        from vllm import LLM

        from kvcellar.demo.tiny import ensure_tiny

        extra = {"host_memory": host_memory, "mode": mode}
        defaults = {
            "enforce_eager": True,
            "max_model_len": 2048,
            "block_size": BLOCK_TOKENS[model],
            "mamba_ssm_cache_dtype": STATE_DTYPE,
            "num_gpu_blocks_override": NUM_DEVICE_BLOCKS[model],
            "disable_log_stats": False,
            "kv_transfer_config": {
                "kv_connector": "CellarConnector",
                "kv_connector_module_path": "kvcellar.integrations.vllm",
                "kv_role": "kv_both",
                "kv_load_failure_policy": "recompute",
                "kv_connector_extra_config": extra,
            },
        }
        self.llm = LLM(str(ensure_tiny(model)), **(defaults | options))
        core = self.llm.llm_engine.engine_core.engine_core
        self.scheduler = core.scheduler
        self.side = self.scheduler.connector.scheduler_side

    def ask(self, prompt, *, max_tokens=8):
        from vllm import SamplingParams

        params = SamplingParams(
            temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=2
        )
        (output,) = self.llm.generate([prompt], params, use_tqdm=False)
        answer = output.outputs[0]
        logprobs = [
            sorted((t, p.logprob) for t, p in step.items()) for step in answer.logprobs
        ]
        return {
            "cached": output.num_cached_tokens,
            "tokens": list(answer.token_ids),
            "logprobs": logprobs,
        }

    def sizes(self):
        """What the engine says of its cache, and what decides that."""
        config = self.llm.llm_engine.vllm_config
        return {
            "num_blocks": config.cache_config.num_gpu_blocks,
            "num_tokens": config.cache_config.kv_cache_size_tokens,
            "max_concurrency": config.cache_config.kv_cache_max_concurrency,
            "max_model_tokens": config.model_config.max_model_len,
            "step_tokens": config.scheduler_config.max_num_batched_tokens,
            "is_async": bool(config.scheduler_config.async_scheduling),
            "arena_bytes": self.side.offloader.slabs.geometry.arena_bytes,
        }

    def settle(self):
        """Let the last stores end, as an idle engine does."""
        while self.scheduler.has_requests():
            self.llm.llm_engine.step()

    def leftovers(self):
        """Whatever should be empty once all requests have ended."""
        from kvcellar.index.checks import check_index

        self.settle()
        offloader = self.side.offloader
        check_index(offloader.index)
        pool = self.scheduler.kv_cache_manager.block_pool
        return {
            "jobs": len(offloader.jobs),
            "records": len(offloader.records),
            "pinned nodes": sum(n.pins > 0 for n in offloader.index.nodes.values()),
            "watched": self.side.num_watched,
            "device blocks": pool.num_gpu_blocks - 1 - pool.get_num_free_blocks(),
        }

    def counters(self):
        return dataclasses.asdict(self.side.offloader.counters)

    def ledger(self):
        """A ledger of all that is computed and loaded from now on."""
        from block_ledger import BlockLedger
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        from kvcellar.integrations.vllm.regions import group_regions

        worker_side = get_kv_transfer_group().worker_side
        layout = self.side.offloader.layout
        return BlockLedger(
            self.scheduler.kv_cache_manager.block_pool,
            worker_side,
            group_regions(layout, worker_side._kv_cache_config, worker_side._kv_caches),
            [group.group_id for group in layout.groups],
        )


def prompts(count):
    return [SOURCE[i * 2100 : i * 2100 + PROMPT_CHARACTERS] for i in range(count)]


def restore(model, mode):
    """Prompts that left the device come back equal to a device hit."""
    engine = Engine(model, mode, **(FEW_THREATENED[model] if mode == "lazy" else {}))
    asked = prompts(8)
    cold, control = [], []
    for prompt in asked:
        cold.append(engine.ask(prompt))
        control.append(engine.ask(prompt))
    engine.settle()
    stored_at_first = engine.counters()["stored_chunks"]
    restored = [engine.ask(prompt) for prompt in asked]
    return {
        "sizes": engine.sizes(),
        "cold cached": [a["cached"] for a in cold],
        "control cached": [a["cached"] for a in control],
        "restored cached": [a["cached"] for a in restored],
        "tokens differ": sum(
            a["tokens"] != b["tokens"] for a, b in zip(control, restored, strict=True)
        ),
        "logprobs differ": sum(
            a["logprobs"] != b["logprobs"]
            for a, b in zip(control, restored, strict=True)
        ),
        "chunks stored before any return": stored_at_first,
        "distinct answers": len({tuple(a["tokens"]) for a in restored}),
        "counters": engine.counters(),
        "leftovers": engine.leftovers(),
    }


def stress(model, mode):
    """Many requests at once, a small device, small host memory, aborts."""
    from vllm import SamplingParams

    num_requests = 200 if mode == "lazy" else 60
    engine = Engine(
        model,
        mode,
        SMALL_HOST_MEMORY[model],
        max_num_seqs=8,
        max_num_batched_tokens=1024,
    )
    ledger = engine.ledger()
    llm, rng = engine.llm.llm_engine, random.Random(0)
    bases, live, started, ended, cached = prompts(10), set(), 0, 0, 0
    while ended < num_requests:
        while len(live) < 8 and started < num_requests:
            base = rng.choice(bases)
            prompt = base[: rng.choice([len(base), 600, rng.randint(1, 600)])]
            if rng.random() < 0.5:
                prompt += SOURCE[-rng.randint(1, 300) :]
            params = SamplingParams(
                temperature=0, max_tokens=rng.randint(1, 30), ignore_eos=True
            )
            llm.add_request(f"r{started}", prompt, params)
            live.add(f"r{started}")
            started += 1
        if rng.random() < 0.03:
            gone = rng.choice(sorted(live))
            llm.abort_request([gone])
            live.discard(gone)
            ended += 1
        outputs = llm.step()
        ledger.after_step()
        for output in outputs:
            if output.finished and output.request_id in live:
                live.discard(output.request_id)
                ended += 1
                cached += output.num_cached_tokens or 0
    evicted = engine.side.offloader.index.counters
    return {
        "ended": ended,
        "cached": cached,
        "loaded blocks checked": [ledger.checked[g] for g in ledger.group_ids],
        "loaded blocks wrong": sum(ledger.wrong.values()),
        "evicted chunks": evicted.evicted_chunks,
        "overtaken": engine.side.num_overtaken,
        "counters": engine.counters(),
        "leftovers": engine.leftovers(),
    }


def disturb(model, mode):
    """Failing loads and resets, one after the other in one engine."""
    engine = Engine(model, mode)
    return {"failing loads": failing_loads(engine), "reset": reset(engine)}


def failing_loads(engine):
    """A load that fails ends as a recompute of that one request, once."""
    asked = prompts(6)
    control = [engine.ask(prompt) for prompt in asked]
    from vllm.distributed.kv_transfer import get_kv_transfer_group

    device = get_kv_transfer_group().worker_side.device
    copy, failures = device.copy, []

    def fail_loads(job, fence=None):
        if job.direction.value == "load":
            failures.append(job.job_id)
            raise OSError("planted fault")
        return copy(job, fence)

    device.copy = fail_loads
    failed = engine.ask(asked[0])
    device.copy = copy
    served = engine.ask(asked[1])
    return {
        "failures": len(failures),
        "failed cached": failed["cached"],
        "failed tokens equal cold": failed["tokens"] == control[0]["tokens"],
        "later cached": served["cached"],
        "counters": engine.counters(),
        "leftovers": engine.leftovers(),
    }


def reset(engine):
    """After a reset of everything nothing is served; after it, new prompts are."""
    prompt, others = prompts(1)[0], prompts(6)[1:]
    engine.ask(prompt)
    plain = engine.llm.reset_prefix_cache()
    after_plain = engine.ask(prompt)
    engine.settle()
    everything = engine.llm.reset_prefix_cache(reset_connector=True)
    after_everything = engine.ask(prompt)
    for other in others:
        engine.ask(other)
    again = engine.ask(prompt)
    return {
        "plain": plain,
        "after plain": after_plain["cached"],
        "everything": everything,
        "after everything": after_everything["cached"],
        "again": again["cached"],
        "leftovers": engine.leftovers(),
    }


def start(model, mode):
    """A device cache as large as its memory allows."""
    return {"sizes": Engine(model, mode, num_gpu_blocks_override=None).sizes()}


SCENARIOS = {s.__name__: s for s in (restore, stress, disturb, start)}


def main():
    scenario, model, mode = sys.argv[1:]
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = "1"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    os.environ["OMP_NUM_THREADS"] = "1"
    # Else a helper of the sampler is compiled at each start, eager or not.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    stdout = os.dup(1)
    os.dup2(2, 1)  # vLLM prints to stdout as well
    figures = SCENARIOS[scenario](model, mode)
    with os.fdopen(stdout, "w") as out:
        json.dump(figures, out)


if __name__ == "__main__":
    main()
