"""KV oracle: the real engine's scheduler and our connector, on a simulated device.

Every byte of the device's cache is a function of the prefix it stands for. A step that
would read anything else fails, so whatever goes wrong between the engine's decision and
the last copied byte shows.
"""
