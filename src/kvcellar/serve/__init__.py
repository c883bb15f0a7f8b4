"""Starting vLLM with kvcellar switched on, and ending it without leftovers."""
