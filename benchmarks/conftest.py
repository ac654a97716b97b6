"""What the benchmarks share: one thread for everybody, so that a number says what the code costs
and not who else was there.

It measures nothing.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(name, "1")
