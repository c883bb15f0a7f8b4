import json
import sys

from kvcellar.config import settings_from_extra_config
from kvcellar.serve.command import ServeSettings, server_command


def test_command_switches_kvcellar_on_and_keeps_vllm_arguments():
    """The connector's configuration is written before the user's own arguments."""
    settings = ServeSettings("m", 2**30, vllm_arguments=("--port", "81"))
    command = server_command(settings)
    assert command[:2] == [sys.executable, "-m"]
    assert command[3:5] == ["--model", "m"]
    assert command[-2:] == ["--port", "81"]
    written = json.loads(command[command.index("--kv-transfer-config") + 1])
    assert written["kv_connector"] == "CellarConnector"
    assert written["kv_connector_module_path"] == "kvcellar.integrations.vllm"
    assert written["kv_role"] == "kv_both"
    assert written["kv_load_failure_policy"] == "recompute"


def test_connector_reads_what_serve_writes():
    """The extra configuration means to the connector what the user asked for."""
    command = server_command(ServeSettings("m", 12345))
    written = json.loads(command[command.index("--kv-transfer-config") + 1])
    read = settings_from_extra_config(written["kv_connector_extra_config"])
    assert (read.host_memory_bytes, read.mode) == (12345, "eager")


def test_without_host_memory_it_is_plain_vllm():
    """The server that the demo compares with has no connector."""
    assert "--kv-transfer-config" not in server_command(ServeSettings("m", None))
