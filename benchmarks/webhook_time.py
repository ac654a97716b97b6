"""What alerts cost a training's step: 200 of them, into a server that fails half of the time.

    python benchmarks/webhook_time.py [--alerts 200] [--answer-ms 20]

Steps of 10 ms of Python alternate: every second one reports a change of state, as `GroupwiseCallback`
does, while the thread of the webhook sends and retries. Printed are what the report itself takes, by
the processor and by the clock on the wall, and how long the steps with a report and without are. It
asserts nothing.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from groupwise.integrations.alerts import Webhook

FACTS = {"since_step": 40, "headline": "reward 0.80 → 0.06", "cause": "likely: a", "do": "b"}


def server_of(answer_ms: float) -> tuple[ThreadingHTTPServer, Any]:
    """A server that answers late, every second time with 500, and how much arrived there."""
    rng, arrived = random.Random(23), multiprocessing.Value("i", 0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            time.sleep(answer_ms / 1000)
            good = rng.random() < 0.5
            with arrived.get_lock():
                arrived.value += good
            self.send_response(200 if good else 500)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler), arrived


def step(seconds: float = 0.01) -> None:
    """Take processor time, as a training does."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))


def main() -> None:
    """Run, and print the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--alerts", type=int, default=200)
    parser.add_argument("--answer-ms", type=float, default=20.0)
    arguments = parser.parse_args()
    server, arrived = server_of(arguments.answer_ms)
    serving = multiprocessing.get_context("fork").Process(target=server.serve_forever)
    serving.start()
    address = f"http://127.0.0.1:{server.server_port}/"
    hook = Webhook(address, apart=0.0, pause=0.001, say=lambda _: None)
    took = {"processor": list[float](), "wall": list[float]()}
    step_ms = {False: list[float](), True: list[float]()}
    for number in range(2 * arguments.alerts):
        reports, begun, processor = number % 2 == 0, time.perf_counter(), time.thread_time()
        if reports:
            hook.change(f"run {number}", {**FACTS, "state": "failing"})
            took["processor"].append(1000 * (time.thread_time() - processor))
            took["wall"].append(1000 * (time.perf_counter() - begun))
        step()
        step_ms[reports].append(1000 * (time.perf_counter() - begun))
    lost = hook.close(60)
    for clock, values in took.items():
        middle, late = np.quantile(values, [0.5, 0.99])
        print(f"{clock}: a report takes {middle:.2f} ms (99 %: {late:.2f}, most {max(values):.2f})")
    with_report, without = (np.quantile(step_ms[kind], [0.5, 0.99]) for kind in (True, False))
    print(
        f"a step with one {with_report[0]:.2f} ms (99 %: {with_report[1]:.2f}), without "
        f"{without[0]:.2f} (99 %: {without[1]:.2f})"
    )
    print(f"{arrived.value} of {arguments.alerts} alerts arrived, {lost} were lost")
    serving.terminate()


if __name__ == "__main__":
    main()
