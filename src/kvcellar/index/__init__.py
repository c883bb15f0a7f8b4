"""What host memory holds, and which of it goes first."""
