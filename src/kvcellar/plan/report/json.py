"""The plan as one JSON object: the fields of its classes, and a few sums."""

import dataclasses
import json
from typing import Any

import kvcellar
from kvcellar.plan.plan import Plan


def json_of(plan: Plan) -> str:
    """One object, in a stable order."""
    return json.dumps(content_of(plan), indent=1)


def content_of(plan: Plan) -> dict[str, Any]:
    """What ``json_of`` writes; sizes in bytes, times in seconds."""
    figures = plan.figures
    host, shape = figures.host, figures.shape
    return {
        "kvcellar": kvcellar.__version__,
        "model": {
            "name": figures.model.name,
            "cache_dtype": figures.model.cache_dtype,
            "num_layers": figures.model.num_layers,
            "max_model_tokens": figures.max_model_tokens,
            "num_identical_ranks": figures.model.num_identical_ranks,
        },
        "shape": {
            **dataclasses.asdict(shape),
            "ranks_per_server": shape.ranks_per_server,
            "ranks_per_node": shape.ranks_per_node,
            "num_ranks": shape.num_ranks,
        },
        "traffic": {
            "prompt_tokens": figures.prompt_tokens,
            "num_concurrent": figures.request.traffic.num_concurrent,
        },
        "units": dataclasses.asdict(figures.units),
        "groups": [dataclasses.asdict(group) for group in figures.groups],
        "host": {
            **dataclasses.asdict(host),
            "chunk_bytes": host.fullest_stage.chunk_bytes,
            "checkpoint_bytes": host.fullest_stage.checkpoint_bytes,
            "bytes_per_token": host.fullest_stage.bytes_per_token,
        },
        "device": (
            None if figures.device is None else dataclasses.asdict(figures.device)
        ),
        "disk": {"asked_bytes": figures.request.disk_bytes, "is_served": False},
        "device_log_line": (
            None if figures.device is None else figures.device.log_line
        ),
        "timing": (
            None if figures.timing is None else dataclasses.asdict(figures.timing)
        ),
        "mode": dataclasses.asdict(figures.advice),
        "commands": dataclasses.asdict(plan.commands),
        "products": list(plan.products),
        "warnings": [dataclasses.asdict(finding) for finding in plan.findings],
        "notes": list(plan.notes),
    }
