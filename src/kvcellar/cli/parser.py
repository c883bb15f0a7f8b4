"""A parser whose complaints are one line, as all others of this command are."""

import argparse
from typing import NoReturn

EXIT_USAGE = 2


class OneLineParser(argparse.ArgumentParser):
    """Leaves the usage to ``--help``; parsers of its subcommands do so, too."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and end with exit code 2."""
        hint = "" if "--help" in message else f"; see {self.prog} --help"
        self.exit(EXIT_USAGE, f"kvcellar: {message}{hint}\n")
