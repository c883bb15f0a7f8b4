"""Decisions: events in, actions out; no I/O, clock or thread."""
