"""Soak the live page: many who watch a run that is being written, some who come and go, some
without the token; print what it took.

    python scripts/soak.py [--seconds 300] [--clients 200]

Each client keeps a page's stream open; a tenth of them leave and come back again and again. Beside
them one opens the page with its files time after time, six at once want the report, of whom half
leave before it is there, and others ask without the token, with a head that is too long and with
half a request. It exits with 1 where the page took a second or longer (the median), where memory
grew by more than a tenth and 16 MB after the first third, where an answer was wrong, or where a
client heard nothing of the last row. Memory is that of the server alone; judging and drawing happen
in processes of their own. It needs /proc.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROWS, FILES, LONGEST_PAGE, GROWTH, SLACK = 500, ("", "live.css", "live.js"), 1.0, 0.10, 16.0


@dataclass
class Tally:
    """What was measured."""

    pages: list[float] = field(default_factory=list)  # seconds of the page with its files
    reports: list[float] = field(default_factory=list)  # seconds of a report that was waited for
    left: int = 0  # reports that nobody waited for
    refused: int = 0
    returned: int = 0
    events: int = 0
    memory: list[float] = field(default_factory=list)  # MB of the server
    wrong: list[str] = field(default_factory=list)


async def ask(port: int, path: str, *, head: str = "") -> tuple[int, bytes]:
    """Return status and body of an answer, over a connection of its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            f"GET /{path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Connection: close\r\n{head}\r\n".encode()
        )
        answer = await reader.read(-1)
    finally:
        writer.close()
    first, _, body = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), body


async def listen(
    port: int, token: str, tally: Tally, seen: list[int], number: int, seconds: float
) -> None:
    """Keep a stream open for a time, and note the newest step that it told."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    writer.write(f"GET /{token}/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    try:
        async with asyncio.timeout(seconds):
            while line := await reader.readline():
                tally.events += line.startswith(b"event: ")
                if (
                    match := re.search(rb'"step":\s*(\d+)', line)
                    if b'"state"' in line[:60]
                    else None
                ):
                    seen[number] = int(match[1])
    except TimeoutError:
        pass
    finally:
        writer.close()


async def come_and_go(
    port: int, token: str, tally: Tally, seen: list[int], number: int, end: float
) -> None:
    """Listen again and again."""
    while (left := end - time.monotonic()) > 0:
        await listen(
            port,
            token,
            tally,
            seen,
            number,
            min(left, random.uniform(0.5, 3.0)) if left > 5 else left,
        )
        tally.returned += 1


async def open_pages(port: int, token: str, tally: Tally, end: float) -> None:
    """Open the page with its files, time after time."""
    while time.monotonic() < end:
        began = time.perf_counter()
        answers = await asyncio.gather(*(ask(port, f"{token}/{name}") for name in FILES))
        tally.pages.append(time.perf_counter() - began)
        tally.wrong += [f"the page answered {status}" for status, _ in answers if status != 200]
        await asyncio.sleep(0.25)


async def want_reports(port: int, token: str, tally: Tally, end: float) -> None:
    """Want a report six at once, and leave half of the time."""
    while time.monotonic() < end:
        began = time.perf_counter()
        asked = [asyncio.create_task(ask(port, f"{token}/report/1")) for _ in range(6)]
        done, _ = await asyncio.wait(asked, timeout=random.choice([0.3, 120.0]))
        for task in asked:
            task.cancel()
        tally.left += len(asked) - len(done)
        tally.wrong += [
            f"a report answered {task.result()[0]}" for task in done if task.result()[0] != 200
        ]
        if len(done) == len(asked):
            tally.reports.append(time.perf_counter() - began)
        await asyncio.sleep(0.5)


async def intrude(port: int, tally: Tally, end: float) -> None:
    """Ask without the token, too much, and not to the end."""
    halves: list[asyncio.StreamWriter] = []
    while time.monotonic() < end:
        for path, head, expected in (
            ("", "", {403}),
            ("x" * 32 + "/events", "", {403}),
            ("", f"X: {'x' * 400_000}\r\n", {400, 403}),
        ):
            try:
                status, body = await ask(port, path, head=head)
            except ConnectionError:
                continue  # the server closed before all of a head that is too long was sent
            tally.refused += 1
            if status not in expected or b'"reward"' in body:
                tally.wrong.append(f"without the token it answered {status}")
        if len(halves) < 50:
            _, half = await asyncio.open_connection("127.0.0.1", port)
            half.write(b"GET / HTTP/1.1\r\n")
            halves.append(half)
        await asyncio.sleep(0.2)
    for half in halves:
        half.close()


async def write(path: Path, end: float) -> int:
    """Append a row a second; return the last step."""
    step = ROWS
    while time.monotonic() < end - 4:
        step += 1
        append(path, step, step)
        await asyncio.sleep(1)
    return step


def append(path: Path, first: int, last: int) -> None:
    """Append rows of a run that learns."""
    with path.open("a") as file:
        for step in range(first, last + 1):
            reward = 0.75 - 0.5 * 0.99**step + 0.01 * ((step * 7) % 11 - 5)
            row = {
                "step": step,
                "reward": reward,
                "entropy": 1 - step / 10_000,
                "completions/mean_length": 200 + step % 7,
            }
            file.write(json.dumps(row) + "\n")


def memory_of(number: int) -> float:
    """Memory of one process in MB: what is its own and what it shares with files."""
    return (
        int(Path(f"/proc/{number}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    )


async def weigh(number: int, tally: Tally, end: float) -> None:
    """Note the memory of the server, twice a second."""
    while time.monotonic() < end:
        tally.memory.append(memory_of(number))
        await asyncio.sleep(0.5)


async def soak(
    path: Path, port: int, token: str, number: int, *, seconds: float, clients: int
) -> tuple[Tally, list[int], int]:
    """Soak for a time; return what was measured, the newest step that each client heard of, and
    the last that was written.
    """
    tally, seen, end = Tally(), [0] * clients, time.monotonic() + seconds
    stay = clients - clients // 10
    listening = [listen(port, token, tally, seen, place, seconds) for place in range(stay)]
    passing = [come_and_go(port, token, tally, seen, place, end) for place in range(stay, clients)]
    others = [
        open_pages(port, token, tally, end),
        want_reports(port, token, tally, end),
        intrude(port, tally, end),
        weigh(number, tally, end),
    ]
    last, *_ = await asyncio.gather(write(path, end), *listening, *passing, *others)
    return tally, seen, int(last or 0)


def complaints(tally: Tally, seen: list[int], last: int) -> list[str]:
    """What was not as it must be."""
    third = len(tally.memory) // 3
    before, after = (
        statistics.median(tally.memory[third : 2 * third]),
        statistics.median(tally.memory[2 * third :]),
    )
    mistakes = sorted(set(tally.wrong))
    if statistics.median(tally.pages) >= LONGEST_PAGE:
        mistakes.append(f"the page took {statistics.median(tally.pages):.2f} s")
    if after > before * (1 + GROWTH) + SLACK:
        mistakes.append(f"memory grew from {before:.0f} to {after:.0f} MB")
    if min(seen) < last:
        mistakes.append(f"{sum(step < last for step in seen)} clients did not hear of step {last}")
    return mistakes


async def run(path: Path, *, seconds: float, clients: int) -> int:
    """Start a watcher, soak it, stop it, and print the figures."""
    append(path, 1, ROWS)
    command = [sys.executable, "-m", "groupwise", "watch", str(path), "--port", "0"]
    server = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    try:
        match = re.search(
            rb"http://127\.0\.0\.1:(\d+)/([\w-]{32})/", await server.stdout.readline()
        )
        assert match is not None
        tally, seen, last = await soak(
            path, int(match[1]), match[2].decode(), server.pid, seconds=seconds, clients=clients
        )
    finally:
        if server.returncode is None:
            server.send_signal(signal.SIGINT)
        _, said = await server.communicate()
    wrong = complaints(tally, seen, last)
    if server.returncode or said:
        wrong.append(
            f"the server ended with {server.returncode} and said "
            f"{said[-300:].decode(errors='replace')!r}"
        )
    pages, memory = sorted(tally.pages), tally.memory
    print(
        f"{clients} clients, {seconds:.0f} s, {last - ROWS} rows written: {tally.events:,} events, "
        f"{tally.returned} came back"
    )
    usual = (
        f"median {statistics.median(pages):.3f} s, 99 % below {pages[int(0.99 * len(pages))]:.3f} "
        f"s, longest {pages[-1]:.3f} s"
    )
    print(f"page with its files: {len(pages)} times, {usual}")
    longest = f", longest {max(tally.reports):.1f} s" if tally.reports else ""
    print(
        f"reports: {len(tally.reports)} times six at once{longest}; {tally.left} requests left "
        "early"
    )
    thirds = [
        statistics.median(memory[place * len(memory) // 3 : (place + 1) * len(memory) // 3])
        for place in range(3)
    ]
    print(
        f"memory of the server, median of each third: "
        f"{', '.join(f'{third:.0f}' for third in thirds)} MB, largest {max(memory):.0f} MB"
    )
    print(f"refused without the token: {tally.refused}")
    for mistake in wrong:
        print(f"WRONG: {mistake}")
    return 1 if wrong else 0


def main() -> int:
    """Read the options and soak."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--clients", type=int, default=200)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        return asyncio.run(
            run(Path(home) / "run.jsonl", seconds=chosen.seconds, clients=chosen.clients)
        )


if __name__ == "__main__":
    sys.exit(main())
