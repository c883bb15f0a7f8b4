"""Numbers of bytes as people read them."""

BINARY_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def format_bytes(num_bytes: float) -> str:
    """Write a size with two decimals in the largest unit that keeps it above 1."""
    for unit, scale in BINARY_UNITS:
        if num_bytes >= scale:
            return f"{num_bytes / scale:.2f} {unit}"
    return f"{num_bytes:g} B"
