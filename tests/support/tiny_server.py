"""Settings of the servers that tests start beside each other."""

# By itself vLLM binds every one-rank engine to the same processors, whoever is there.
ANY_ONE_CPU = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}
