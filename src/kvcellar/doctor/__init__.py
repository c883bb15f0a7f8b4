"""Looking over a machine, a configuration and a running server before they surprise.

    read_machine, read_configuration, read_server -> Facts -> checks -> Report

A check is a function from facts to findings. It reads nothing by itself, so that tests
state the facts, and ``kvcellar serve`` refuses a start by the very same checks.
"""
