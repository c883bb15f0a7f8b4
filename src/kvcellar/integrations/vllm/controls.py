"""Reads a request's ``kv_transfer_params``, and warns of what is left out."""

import time
from typing import TYPE_CHECKING

from vllm.logger import init_logger

from kvcellar.core.controls import (
    NO_CONTROLS,
    BadControl,
    RequestControls,
    read_controls,
)

if TYPE_CHECKING:
    from vllm.v1.request import Request

logger = init_logger("vllm.kvcellar")

MOST_WARNED_KEYS = 100  # a client may invent a key per request


class ControlReader:
    """Warns once per key: a client that is wrong is wrong in every request.

    Attributes:
        num_bad: controls that were left out, since start.
    """

    def __init__(self) -> None:
        self.num_bad = 0
        self._warned: set[str] = set()

    def read(self, request: "Request") -> RequestControls:
        """The wishes of a request; what cannot be read is left out, and counted."""
        params = request.kv_transfer_params
        if not params:
            return NO_CONTROLS
        controls, bad = read_controls(params, time.time())
        for one in bad:
            self._left_out(request, one)
        return controls

    def _left_out(self, request: "Request", bad: BadControl) -> None:
        self.num_bad += 1
        if bad.key in self._warned or len(self._warned) >= MOST_WARNED_KEYS:
            return
        self._warned.add(bad.key)
        logger.warning(
            "kvcellar: request %s is served without a control: %s (further ones of "
            "this key are only counted, in kvcellar_bad_controls_total)",
            *(request.request_id, bad.message),
        )
