"""`python -m groupwise` is the command `groupwise`."""

import sys

from groupwise.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
