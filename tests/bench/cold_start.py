#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how long a worker takes to load a model, with and without packed weights on disk.

    build/venv/bin/python tests/bench/cold_start.py MODEL [--weights=int8] [--threads=2] [--rounds=4]

From the start of the process to its `loaded` line, in turn; the first start of the cache, which writes it,
is told apart. Prints a table and writes build/bench/cold_start.json. Model files are in the page cache.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402


def start(model, *flags):
    """Seconds of wall-clock and CPU time, and whether the weights came from the cache."""
    begin = time.monotonic()
    worker = fleet.start_worker(model, *flags, wait=False)
    record = worker.wait_for_log("loaded")
    wall = time.monotonic() - begin
    fields = pathlib.Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    worker.kill()
    cpu = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return wall, cpu, record["weights_from_cache"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    flags = (f"--weights={options.weights}", f"--threads={options.threads}", "--kv_blocks=300",
             "--max_context_tokens=2048")
    with tempfile.TemporaryDirectory() as folder:
        cached = (*flags, f"--weights_cache={folder}")
        samples = {"first": [start(options.model, *cached)], "packed anew": [], "cached": []}
        size = sum(path.stat().st_size for path in pathlib.Path(folder).iterdir())
        for _ in range(options.rounds):
            samples["packed anew"].append(start(options.model, *flags))
            samples["cached"].append(start(options.model, *cached))
    if not all(hit for _, _, hit in samples["cached"]):
        sys.exit("the cache was not used")
    for name, starts in samples.items():
        wall, cpu = (statistics.median(s[i] for s in starts) for i in (0, 1))
        print(f"{options.weights:<6}{name:<12} wall {wall:6.2f} s   CPU {cpu:6.2f} s", flush=True)
    print(f"{size >> 20} MiB on disk")
    out = ROOT / "build/bench/cold_start.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"weights": options.weights, "bytes": size, "samples": samples}, indent=1) + "\n")


if __name__ == "__main__":
    main()
