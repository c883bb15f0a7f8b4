"""What the support matrix lists, and which tests it goes by.

How each is proven is read from the tests: their markers, and what they import.
"""

from dataclasses import dataclass

_ORACLE = "tests/testing/oracle/test_oracle.py"
_ENGINE = "tests/integrations/vllm/test_real_engine.py"
_VLLM = "tests/integrations/vllm"


@dataclass(frozen=True)
class Feature:
    """One row.

    Attributes:
        title: in the user's words.
        tests: ``path::name`` of some that prove it; at least one of each ground.
    """

    title: str
    tests: tuple[str, ...]


FEATURES = (
    Feature(
        "full attention, sliding window, chunked local attention, recurrent state",
        (
            f"{_ENGINE}::test_restored_prompts_equal_a_device_hit",
            f"{_ORACLE}::test_a_random_run_reads_only_right_bytes",
        ),
    ),
    Feature(
        "MLA, compressed MLA, DeepSeek-V4 with and without MTP, drafters in the cache",
        (
            f"{_ORACLE}::test_a_random_run_reads_only_right_bytes",
            f"{_VLLM}/test_rules_equal_managers.py::test_same_hit_with_mixed_blocks",
        ),
    ),
    Feature(
        "DeepSeek-V4's dead state left out",
        (
            f"{_VLLM}/test_dead_state.py::test_no_step_reads_a_wrong_state",
            f"{_VLLM}/test_dead_state_kernels.py"
            "::test_the_engine_s_kernels_leave_the_same_bytes",
        ),
    ),
    Feature(
        "eager and lazy mode, preemption, aborts",
        (
            f"{_ENGINE}::test_a_busy_engine_ends_every_request_and_leaves_nothing",
            f"{_ORACLE}::test_a_random_run_reads_only_right_bytes",
        ),
    ),
    Feature(
        "failed copies, resets of the cache",
        (
            f"{_ENGINE}::test_a_failed_load_is_recomputed_once",
            f"{_ENGINE}::test_reset_clears_what_it_says",
            f"{_ORACLE}::test_a_random_run_reads_only_right_bytes",
        ),
    ),
    Feature(
        "`kvcellar serve`, `/metrics`, `/kvcellar/status`, `kvcellar why`",
        ("tests/serve/test_real_serve.py::test_metrics_status_and_why_over_http",),
    ),
    Feature(
        "`kvcellar top`",
        (
            "tests/monitor/top/test_app.py::test_it_fills_terminals_of_any_size",
            "tests/monitor/top/test_app.py::test_keys_reach_the_session",
        ),
    ),
    Feature(
        "controls of single requests, KV events over ZeroMQ",
        (
            f"{_VLLM}/test_real_controls.py"
            "::test_a_request_decides_what_is_stored_and_loaded",
            f"{_VLLM}/test_real_controls.py"
            "::test_a_router_learns_over_the_wire_what_host_memory_holds",
        ),
    ),
    Feature(
        "asynchronous scheduling, vLLM's second model runner",
        (
            f"{_ORACLE}::test_a_random_run_reads_only_right_bytes",
            f"{_VLLM}/test_second_runner.py"
            "::test_no_block_written_early_reaches_host_memory",
        ),
    ),
    Feature(
        "beside another connector in vLLM's `MultiConnector`",
        (f"{_VLLM}/test_multi_connector.py::test_a_random_run_with_two_children",),
    ),
    Feature(
        "several API servers in front of one engine",
        (f"{_VLLM}/test_stats.py::test_several_api_servers_export_one_truth",),
    ),
    Feature(
        "tensor and pipeline parallelism: ranks with equal and with different bytes",
        (
            "tests/testing/oracle/test_ranks.py"
            "::test_a_random_run_reads_only_right_bytes_on_every_rank",
            f"{_VLLM}/test_exchange.py"
            "::test_processes_in_groups_get_all_values_in_rank_order",
        ),
    ),
    Feature(
        "tensor parallelism through the server, ranks with the same bytes on one arena",
        (
            "tests/demo/test_real_demo.py"
            "::test_returning_conversations_are_served_exactly",
            "tests/transfer/test_shared_processes.py"
            "::test_every_rank_loads_what_was_stored_and_it_is_there_once",
        ),
    ),
    Feature(
        "CUDA, one rank: copies on streams of their own, pinned host memory",
        (
            "tests/device/test_ordering.py"
            "::test_rule_holds_however_late_each_stream_is",
            f"{_VLLM}/test_cuda_oracle.py"
            "::test_late_copies_never_give_a_step_wrong_bytes",
        ),
    ),
    Feature(
        "ROCm, XPU: what falls out of PyTorch's stream interface; never run there",
        (
            "tests/device/test_torch_driver.py"
            "::test_an_accelerator_without_nvidias_library_copies_through_pytorch",
        ),
    ),
)

NOT_THERE = (
    "decode and prefill context parallelism",
    "tiers behind host memory: disk and shared stores",
    "a pool that the replicas of one machine share",
)
