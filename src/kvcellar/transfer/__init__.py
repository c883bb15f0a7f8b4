"""Copy jobs, and the thread that carries them out."""
