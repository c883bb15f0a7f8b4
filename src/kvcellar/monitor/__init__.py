"""Looking into a running server over HTTP."""
