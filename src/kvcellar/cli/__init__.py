"""The ``kvcellar`` command: one file per subcommand, nothing heavy imported to parse."""
