"""A plan as text for people, and as JSON for scripts."""
