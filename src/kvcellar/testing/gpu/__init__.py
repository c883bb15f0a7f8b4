"""Checks of the copies to and from an accelerator, real or fake.

`make gpu-check` runs them on a GPU; the tests run the same ones on ``FakeDriver``.
"""
