"""The demo: returning conversations against a real server, without kvcellar and with."""
