"""One folder per engine."""
