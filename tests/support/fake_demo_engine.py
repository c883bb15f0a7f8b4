"""A stand-in for the demo's client: a device cache of whole conversations, and a host.

It keeps the last few prompts per salt on the "device" and, if asked to, every prompt
on the "host". An answer is a function of its prompt, so that any two equal prompts have
equal answers unless a fault is injected.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence

from kvcellar.demo.client import Completion
from kvcellar.demo.metrics import TRANSFER_BYTES, Samples, parse_metrics

BLOCK_TOKENS = 32


class FakeEngine:
    """Answers like a server with or without kvcellar.

    Attributes:
        is_wrong_after_load: changes the answers to prompts found on the host.
        counts_bytes: whether the kvcellar counters are exported.
    """

    def __init__(self, num_held: int = 3, *, has_host: bool = False) -> None:
        self.num_held = num_held
        self.has_host = has_host
        self.is_wrong_after_load = False
        self.counts_bytes = has_host
        self._device: OrderedDict[tuple[str, int], tuple[int, ...]] = OrderedDict()
        self._host: list[tuple[str, tuple[int, ...]]] = []
        self._tokens = {"local_compute": 0, "local_cache_hit": 0, "host": 0}
        self._loaded_bytes = 0

    def tokenize(self, text: str) -> list[int]:
        """One token per character."""
        return [ord(character) for character in text]

    def complete(
        self, prompt: Sequence[int], num_tokens: int, cache_salt: str
    ) -> Completion:
        """Answer from the longest prefix held, device first."""
        whole = tuple(prompt)
        on_device = self._longest(whole, cache_salt, self._device_prompts())
        on_host = self._longest(whole, cache_salt, self._host)
        from_host = max(0, on_host - on_device)
        self._tokens["local_cache_hit"] += on_device
        self._tokens["host"] += from_host
        self._tokens["local_compute"] += len(whole) - on_device - from_host
        self._loaded_bytes += 100 * from_host
        self._remember(whole, cache_salt)
        digest = hashlib.sha256(repr(whole).encode()).digest()
        tokens = tuple((digest * num_tokens)[:num_tokens])
        if from_host and self.is_wrong_after_load:
            tokens = (*tokens[:-1], tokens[-1] + 1)
        computed = len(whole) - on_device - from_host
        ttft_seconds = 0.01 + computed * 1e-3 + from_host * 1e-6
        return Completion(
            ttft_seconds=ttft_seconds,
            last_token_seconds=ttft_seconds + (num_tokens - 1) * 2e-3,
            tokens=tokens,
            logprobs=tuple(-1.0 / (1 + token) for token in tokens),
            num_prompt_tokens=len(whole),
            num_cached_tokens=on_device + from_host,
        )

    def metrics(self) -> Samples:
        """The counters that the demo reads, in the exposition format."""
        name = "vllm:prompt_tokens_by_source_total"
        counts = self._tokens
        lines = [
            "# HELP ignored",
            f'{name}{{source="local_compute"}} {counts["local_compute"]}',
            f'{name}{{source="local_cache_hit"}} {counts["local_cache_hit"]}',
            f'{name}{{source="external_kv_transfer"}} {counts["host"]}',
        ]
        if self.counts_bytes:
            lines += [
                f'{TRANSFER_BYTES}{{direction="store"}} {100 * len(self._host)}',
                f'{TRANSFER_BYTES}{{direction="load"}} {self._loaded_bytes}',
            ]
        return parse_metrics("\n".join(lines))

    def _device_prompts(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(salt, prompt) for (salt, _), prompt in self._device.items()]

    def _remember(self, prompt: tuple[int, ...], salt: str) -> None:
        # One entry per conversation: its prompts share their first tokens.
        key = (salt, hash(prompt[:100]))
        self._device[key] = prompt
        self._device.move_to_end(key)
        while len(self._device) > self.num_held:
            self._device.popitem(last=False)
        if self.has_host:
            self._host.append((salt, prompt))

    @staticmethod
    def _longest(
        prompt: tuple[int, ...], salt: str, held: list[tuple[str, tuple[int, ...]]]
    ) -> int:
        best = 0
        for held_salt, held_prompt in held:
            if held_salt != salt:
                continue
            limit = min(len(held_prompt), len(prompt) - 1)
            same = next((i for i in range(limit) if prompt[i] != held_prompt[i]), limit)
            best = max(best, same // BLOCK_TOKENS * BLOCK_TOKENS)
        return best
