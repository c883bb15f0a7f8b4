"""One planner's state in plain types."""

import hashlib
from dataclasses import asdict
from typing import Any

from kvcellar.core.ledger import Ledger
from kvcellar.core.offloader import Offloader
from kvcellar.index.capacity import capacity
from kvcellar.layout.groups import CacheLayout

MOST_PREFIXES = 20
MOST_TENANTS = 5
_KEY_DIGITS = 16  # of a prefix's hash; enough to tell them apart


def fixed_facts(offloader: Offloader) -> dict[str, Any]:
    """What does not change while a server runs."""
    return {
        "settings": asdict(offloader.settings),
        "layout": _layout(offloader.layout),
        "capacity": asdict(capacity(offloader.layout, offloader.slabs.geometry)),
    }


def planner_state(offloader: Offloader) -> dict[str, Any]:
    """What is held, and what became of prompts."""
    index, slabs = offloader.index, offloader.slabs
    return {
        "tiers": {
            "host": {
                "capacity_bytes": slabs.geometry.arena_bytes,
                "used_bytes": slabs.used_bytes,
                "claimed_bytes": slabs.claimed_bytes,
                "chunks": len(index.nodes),
                "checkpoints": index.num_checkpoints,
                "pinned_chunks": index.num_pinned_chunks,
                "leased_bytes": index.leases.used_bytes,
                "leases": len(index.leases.ends),
            }
        },
        "tenants": _tenants(offloader),
        "num_requests": len(offloader.records),
        **_ledger(offloader.ledger),
    }


def _tenants(offloader: Offloader) -> dict[str, Any]:
    """How much those hold that are bounded. A cache salt is a secret: no name of it."""
    tenants, settings = offloader.index.tenants, offloader.settings
    name = str if settings.tenant_by == "tag" else _alias
    return {
        "tenants": len(tenants),
        "most_bytes": tenants.most_bytes,
        "fullest": [
            {"name": name(found), "used_bytes": num_bytes}
            for found, num_bytes in tenants.fullest(MOST_TENANTS)
        ],
    }


def _alias(secret: str) -> str:
    """The same for the same secret, and nothing to learn it from."""
    return hashlib.blake2b(secret.encode(), digest_size=4).hexdigest()


def _ledger(ledger: Ledger) -> dict[str, Any]:
    missed = {r.value: count for r, count in ledger.missed_tokens.items() if count}
    busiest = ledger.prefixes.busiest(MOST_PREFIXES)
    return {
        "prompt_tokens": {
            "device": ledger.device_tokens,
            "host": ledger.host_tokens,
            "computed": ledger.computed_tokens,
        },
        "missed_tokens": missed,
        "requests_served_by": dict(ledger.num_requests),
        "prefixes": [
            {
                "key": key.hex()[:_KEY_DIGITS],
                "tokens": prefix.num_tokens,
                "requests": prefix.num_requests,
                "served_tokens": prefix.served_tokens,
                "host_tokens": prefix.host_tokens,
                "weight": round(prefix.weight),
            }
            for key, prefix in busiest
        ],
    }


def _layout(layout: CacheLayout) -> dict[str, Any]:
    return {
        "chunk_tokens": layout.chunk_tokens,
        "hash_block_tokens": layout.hash_block_tokens,
        "alignment_tokens": layout.alignment_tokens,
        "groups": [
            {
                "group_id": group.group_id,
                "kind": group.kind.value,
                "tokens_per_block": group.tokens_per_block,
                "block_bytes": group.payload_bytes,
                "num_layers": group.num_layers,
                "span_tokens": group.span_tokens,
            }
            for group in layout.groups
        ],
    }
