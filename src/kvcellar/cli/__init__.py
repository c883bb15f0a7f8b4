"""The ``kvcellar`` command: one file per subcommand, light to start."""
