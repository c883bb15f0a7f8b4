"""The demo: returning conversations against a real server, with kvcellar or not."""
