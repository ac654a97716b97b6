"""The laboratory as `python -m groupwise_lab`."""

import sys

from groupwise_lab.cli.app import main

sys.exit(main())
