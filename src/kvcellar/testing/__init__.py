"""What others may use to test against kvcellar."""
