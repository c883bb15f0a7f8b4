"""``python -m kvcellar`` is the ``kvcellar`` command."""

import sys

from kvcellar.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
