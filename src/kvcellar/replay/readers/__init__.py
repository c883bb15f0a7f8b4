"""Readers of recorded traces: one file per format, and one way in.

===================  =========================================================
format               what it is
===================  =========================================================
``kvcellar-events``  kvcellar's own, see `event_log`; `write_trace` writes it
``mooncake``         requests with ids of 512-token blocks, see `mooncake`
``weka``             sessions of coding agents with ids, see `weka`
``kv-events``        vLLM's published KV events, an approximation, see `kv_events`
``sessions``         conversations with their text, see `sessions`
``openai``           logs of chat and completion requests, see `openai`
===================  =========================================================
"""

from kvcellar.errors import TraceError
from kvcellar.replay.readers.arrivals import Arrivals
from kvcellar.replay.readers.event_log import write_trace
from kvcellar.replay.readers.open import FORMATS, open_trace

__all__ = ["FORMATS", "Arrivals", "TraceError", "open_trace", "write_trace"]
