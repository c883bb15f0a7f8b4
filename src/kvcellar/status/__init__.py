"""What a running server says of itself, over a socket of its own."""
