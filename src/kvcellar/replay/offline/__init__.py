"""What no order of eviction can beat, worked out with the whole trace known."""
