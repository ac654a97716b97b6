"""`python -m groupwise` is the command `groupwise`.

It does nothing else.
"""

import sys

from groupwise.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
