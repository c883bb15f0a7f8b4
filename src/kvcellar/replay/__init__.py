"""What a server would have done with a recorded day: traces in, curves out."""
