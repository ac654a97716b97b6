"""What a report takes of a processor, how large it is and how much memory it needs, for logs of
1,000, 10,000 and 100,000 steps.

Run it with `python benchmarks/report_time.py`, and with OPENBLAS_NUM_THREADS=2 before it, which
should change nothing. Each log is measured in a process of its own, which first imports every
library that a report needs and then reads, fits, forecasts, draws and writes; "baseline" is the
memory after the imports. It asserts nothing.
"""

from __future__ import annotations

import importlib
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SIZES = (1_000, 10_000, 100_000)
LIBRARIES = (
    "numpy",
    "polars",
    "scipy.linalg",
    "scipy.optimize",
    "scipy.signal",
    "scipy.special",
    "scipy.stats",
    "matplotlib.figure",
    "matplotlib.patches",
    "matplotlib.backends.backend_svg",
)


def write_log(folder: Path, size: int) -> Path:
    """Write the state of a TRL run of `size` steps with every usual key and two reward
    functions.
    """
    rng = np.random.default_rng(size)
    rows = []
    for step in range(1, size + 1):
        p = 0.75 - 0.55 * math.exp(-step / (0.2 * size))
        right = rng.binomial(64, p) / 64
        shape = rng.binomial(64, 0.95) / 64
        rows.append(
            {
                "step": step,
                "epoch": step / size,
                "reward": right + shape,
                "reward_std": math.sqrt(p * (1 - p)) + rng.normal(0, 0.02),
                "rewards/correct/mean": right,
                "rewards/correct/std": 0.4,
                "rewards/shape/mean": shape,
                "rewards/shape/std": 0.2,
                "frac_reward_zero_std": rng.binomial(8, min(1.0, p**8 + (1 - p) ** 8)) / 8,
                "completions/mean_length": 200 + rng.normal(0, 10),
                "completions/clipped_ratio": rng.binomial(64, 0.05) / 64,
                "entropy": 1 - 0.5 * step / size + rng.normal(0, 0.02),
                "kl": abs(rng.normal(0, 1e-3)),
                "grad_norm": abs(rng.normal(1, 0.2)),
                "learning_rate": 1e-6 * (1 - step / size),
                "loss": rng.normal(0, 1e-3),
                "num_tokens": 64.0 * 250 * step,
                "step_time": 20 + rng.normal(0, 1),
            }
        )
    path = folder / f"log-{size}" / "trainer_state.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"global_step": size, "logging_steps": 1, "log_history": rows}))
    return path


def peak_megabytes() -> float:
    """Return the largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(log: Path, page: Path) -> None:
    """Measure one report in this process and print the figures as JSON."""
    started = time.process_time()
    for library in LIBRARIES:
        importlib.import_module(library)
    imported = time.process_time()
    baseline = peak_megabytes()
    from groupwise.analysis.summary import summarise
    from groupwise.pages.html import render
    from groupwise.readers import run_record

    record = run_record(log, settings={"group_size": "8", "prompts_per_step": "8"})
    read = time.process_time()
    after_reading = peak_megabytes()
    summary = summarise(record)
    summarised = time.process_time()
    page.write_text(render([summary]), encoding="utf-8")
    done = time.process_time()
    figures = {
        "imports": imported - started,
        "read": read - imported,
        "fit": summarised - read,
        "draw": done - summarised,
        "work": done - imported,
        "page_kB": page.stat().st_size / 1000,
        "baseline_MB": baseline,
        "read_MB": after_reading,
        "peak_MB": peak_megabytes(),
    }
    print(json.dumps(figures))


def main() -> None:
    """Print one line a size."""
    print(
        f"{'steps':>8} {'log MB':>7} {'imports s':>10} {'work s':>7} {'(read':>7} {'fit':>6} "
        f"{'draw)':>6} {'page kB':>8}",
        end=" ",
    )
    print(f"{'MB: imports':>12} {'read':>6} {'peak':>6} {'peak - read':>12}")
    with tempfile.TemporaryDirectory() as home:
        for size in SIZES:
            log = write_log(Path(home), size)
            command = [sys.executable, __file__, str(log), str(Path(home) / "page.html")]
            f = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True).stdout
            )
            print(
                f"{size:>8,} {log.stat().st_size / 1e6:>7.1f} {f['imports']:>10.2f} "
                f"{f['work']:>7.2f} {f['read']:>7.2f}",
                end=" ",
            )
            print(
                f"{f['fit']:>6.2f} {f['draw']:>6.2f} {f['page_kB']:>8.0f} {f['baseline_MB']:>12.0f}",
                end=" ",
            )
            print(
                f"{f['read_MB']:>6.0f} {f['peak_MB']:>6.0f} {f['peak_MB'] - f['read_MB']:>12.0f}",
                flush=True,
            )


if __name__ == "__main__":
    if len(sys.argv) == 3:
        measure(Path(sys.argv[1]), Path(sys.argv[2]))
    else:
        main()
