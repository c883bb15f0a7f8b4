"""The worker halves of all ranks, started together as an engine starts them."""

from collections.abc import Sequence
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole

from kvcellar.integrations.vllm.connector import CellarConnector
from kvcellar.testing.exchange import local_exchanges, run_together
from kvcellar.testing.oracle.device import SimulatedDevice
from kvcellar.testing.oracle.layouts import OracleLayout


def start_workers(
    layout: OracleLayout, seed: int
) -> tuple[list[Any], list[SimulatedDevice]]:
    """A connector and a simulated cache for each rank, registered.

    Args:
        seed: of what the caches hold before anything is computed.
    """
    workers: list[Any] = [
        KVConnectorFactory.create_connector(
            layout.vllm_config, KVConnectorRole.WORKER, config
        )
        for config in layout.worker_configs
    ]
    devices = [
        SimulatedDevice(config, seed + rank, rank)
        for rank, config in enumerate(layout.worker_configs)
    ]
    _connect(workers)
    pairs = zip(workers, devices, strict=True)
    run_together([_registering(*pair) for pair in pairs])
    return workers, devices


def ours(connector: Any) -> list[CellarConnector]:
    """The connector itself, or our children of a ``MultiConnector``."""
    children = getattr(connector, "sub_connectors", [connector])
    return [child for child in children if isinstance(child, CellarConnector)]


def _connect(workers: Sequence[Any]) -> None:
    """Let the halves of all ranks speak to each other, each with its own kind."""
    if len(workers) == 1:
        return
    for halves in zip(*map(ours, workers), strict=True):
        for half, exchange in zip(halves, local_exchanges(len(halves)), strict=True):
            half.worker_side.exchange = exchange


def _registering(worker: Any, device: SimulatedDevice) -> Any:
    return lambda: worker.register_kv_caches(device.kv_caches)
