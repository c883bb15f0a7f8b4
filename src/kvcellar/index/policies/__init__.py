"""Orders of eviction, one file each; the index says who may go, they say who goes."""
