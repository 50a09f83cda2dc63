"""How fast `mcdensity serve` answers, and whether it bears bad requests. On this machine only.

    python benchmarks/serving.py [--seconds 10] [--mixed 60] [--text]

Fits and distills a small model, serves it on a free port of 127.0.0.1 in a process of its own, and
asks from this one: single rows over 50 connections, batches of 1000 rows, then good and bad
requests mixed, while the memory of the server is watched; at last the server is killed in the
middle of requests, and started again. Ends after the given seconds, or after 200,000 requests.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from mcdensity import MCD, TableEstimator, save

MOST_REQUESTS = 200_000
FEATURES = 8


def make_model(path: Path, text: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, FEATURES))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 2] + (0.3 + 0.2 * np.abs(X[:, 1])) * rng.normal(size=2000)
    model = MCD("quadratic", random_state=0)
    if text:
        table = pd.DataFrame(X, columns=[f"x{j}" for j in range(FEATURES)])
        table["x7"] = np.where(X[:, 7] > 0, "yes", "no")
        model = TableEstimator(model).fit(table, y)
    else:
        model = model.fit(X, y)
    save(model.distill(random_state=0), path)


def make_row(rng: random.Random, text: bool) -> dict:
    row = {f"x{j}": round(rng.gauss(0, 1), 4) for j in range(FEATURES)}
    return row | {"x7": rng.choice(["yes", "no"])} if text else row


class Connection:
    """One HTTP connection that is kept."""

    def __init__(self, port: int) -> None:
        self.port, self.streams = port, None

    async def ask(self, body: bytes, path: str = "/predict") -> tuple[int, bytes]:
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 24)
        reader, writer = self.streams
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
        reply = await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split()[1]), reply

    def close(self) -> None:
        if self.streams is not None:
            self.streams[1].close()
            self.streams = None


async def load_test(port: int, bodies: list[bytes], connections: int, seconds: float) -> list:
    """Return seconds, status and reply of each request."""
    found: list[tuple[float, int, bytes]] = []
    end = time.perf_counter() + seconds

    async def keep_asking(number: int) -> None:
        connection, i = Connection(port), number
        while time.perf_counter() < end and len(found) < MOST_REQUESTS:
            start = time.perf_counter()
            status, reply = await connection.ask(bodies[i % len(bodies)])
            found.append((time.perf_counter() - start, status, reply[:300]))
            i += connections
        connection.close()

    await asyncio.gather(*(keep_asking(i) for i in range(connections)))
    return found


def memory(process: subprocess.Popen) -> float:
    """Megabytes that the server holds."""
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(v.split()[1]) for v in lines if v.startswith("VmRSS")) / 1024


def seconds_of(process: subprocess.Popen) -> float:
    """Processor time of the server: other work on the machine does not change it."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(path: Path) -> tuple[subprocess.Popen, int]:
    words = [sys.executable, "-m", "mcdensity.cli", "serve", str(path), "--port", "0"]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if "http://" in line:
            return process, int(line.rsplit(":", 1)[1])
    raise SystemExit("The server did not start.")


def bad_bodies(rng: random.Random, text: bool) -> list[bytes]:
    good = make_row(rng, text)
    contents = [
        {"rows": [good | {"x0": "much"}]}, {"rows": [good | {"x0": [1, 2]}]}, {"rows": []},
        {"rows": [{"x0": 1}]}, {"rows": [good], "quantiles": [2]}, {"rows": [good] * 10_001},
        {"rows": [good], "model": "none"}, {"rows": [good | {"x1": float("nan")}]},
        {"row": [good]}, {"rows": 3}, {"rows": [good | {"x2": 10**400}]},
    ]  # fmt: skip
    junk = [b"", b"{", b"\xff" * 1000, b"[" * 10_000, b'"' + b"a" * 9_000_000]
    return [json.dumps(content).encode() for content in contents] + junk


def report_speed(name: str, found: list, seconds: float, cpu: float, rows: int = 1) -> None:
    times = np.array([entry[0] for entry in found])
    good = sum(entry[1] == 200 for entry in found)
    p50, p99 = 1000 * np.quantile(times, [0.5, 0.99])
    rate = len(found) / seconds
    print(
        f"{name}: {rate:,.0f} requests/s, {rows * rate:,.0f} rows/s, "
        f"median {p50:.0f} ms, p99 {p99:.0f} ms, {good} of {len(found)} answered with 200; "
        f"the server's processor time: {1000 * cpu / len(found):.2f} ms a request",
        flush=True,
    )


def mixed(process: subprocess.Popen, port: int, seconds: float, text: bool) -> None:
    """Good and bad requests; memory at the start (after a tenth of the time) and at the end."""
    rng = random.Random(1)
    good = [json.dumps({"rows": [make_row(rng, text)] * n}).encode() for n in (1, 1, 10, 500)]
    bodies = good * 4 + bad_bodies(rng, text)
    rng.shuffle(bodies)
    counts: dict[int, int] = {}
    sizes = []
    silent = 0
    for _ in range(10):
        for _, status, reply in asyncio.run(load_test(port, bodies, 20, seconds / 10)):
            counts[status] = counts.get(status, 0) + 1
            silent += 400 <= status < 500 and b'"error": "' not in reply
        sizes.append(memory(process))
    print(f"mixed for {seconds:.0f} s: answers by status {dict(sorted(counts.items()))}, "
          f"{silent} without a sentence; server alive: {process.poll() is None}")  # fmt: skip
    growth = 100 * (sizes[-1] / sizes[0] - 1)
    print(
        f"memory: {sizes[0]:.0f} MB after a tenth of the time, {sizes[-1]:.0f} MB at the end "
        f"({growth:+.1f} %), at most {max(sizes):.0f} MB",
        flush=True,
    )


def kill_in_the_middle(process: subprocess.Popen, port: int, path: Path, body: bytes) -> None:
    async def ask_and_kill() -> None:
        asking = asyncio.ensure_future(load_test(port, [body], 10, 5))
        await asyncio.sleep(1)
        process.send_signal(signal.SIGKILL)
        await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(ask_and_kill())
    process.wait()
    left = sorted(p.name for p in path.parent.iterdir())
    again, port = start(path)
    status, _ = asyncio.run(Connection(port).ask(body))
    print(f"killed in the middle of requests: files {left}; started again, it answers {status}")
    again.terminate()
    print(f"told to end: exit code {again.wait(60)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of each test of speed")
    parser.add_argument("--mixed", type=float, default=60, help="seconds of good and bad requests")
    parser.add_argument("--text", action="store_true", help="a table with a column of text")
    given = parser.parse_args()
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mcd"
        make_model(path, given.text)
        kind = "a table with text" if given.text else "numbers"
        print(f"{os.cpu_count()} cores, shared by client and server; distilled model of "
              f"{FEATURES} features ({kind})")  # fmt: skip
        process, port = start(path)
        try:
            options = {"quantiles": [0.05, 0.5, 0.95]}
            ones = [{"rows": [make_row(rng, given.text)]} | options for _ in range(500)]
            single = [json.dumps(one).encode() for one in ones]
            asyncio.run(load_test(port, single, 50, 2))
            before = seconds_of(process)
            found = asyncio.run(load_test(port, single, 50, given.seconds))
            cpu = seconds_of(process) - before
            report_speed("single rows, 50 connections", found, given.seconds, cpu)
            many = {"rows": [make_row(rng, given.text) for _ in range(1000)]} | options
            batch = [json.dumps(many).encode()]
            before = seconds_of(process)
            found = asyncio.run(load_test(port, batch, 4, given.seconds))
            cpu = seconds_of(process) - before
            report_speed("batches of 1000 rows, 4 connections", found, given.seconds, cpu, 1000)
            if given.mixed:
                mixed(process, port, given.mixed, given.text)
            kill_in_the_middle(process, port, path, batch[0])
        finally:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
