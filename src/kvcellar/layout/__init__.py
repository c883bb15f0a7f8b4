"""What a model's cache looks like: groups, kinds, token units, bytes."""
