#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much arriving prompts delay running streams: the time between tokens of a worker at
a part of its capacity, with prompts of less than a third of the answers' length, beside what a step
takes that only decodes. By turns, several rounds:

* capacity: --streams requests at any time, answers of --output_tokens; output tokens a second;
* decoding: as many streams that all decode, prompts of one token; the median time between tokens;
* mixed: requests at random times (Poisson), --load of the capacity.

The goal is a p99 between tokens of at most 1.5 times a step that only decodes, at a load of 0.8 and
at most 0.3 prompt tokens for each output token. Prints a table and writes build/bench/mixed.json.

    tests/bench/engine/mixed.py --model=DIR [--streams=16] [--prompt_tokens=30] [--output_tokens=100]
        [--load=0.8] [--requests=96] [--rounds=3] [--worker_flags=…]
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402


def bench(worker, seed, **flags):
    """The report of `continuo bench`; ends with it where a request failed."""
    done = subprocess.run(
        [fleet.BIN / "continuo", "bench", f"--server={worker.address}", "--bypass_cache",
         f"--seed={seed}", "--json=-", *(f"--{name}={value}" for name, value in flags.items())],
        stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--prompt_tokens", type=int, default=30)
    parser.add_argument("--output_tokens", type=int, default=100)
    parser.add_argument("--load", type=float, default=0.8)
    parser.add_argument("--requests", type=int, default=96, help="of the mixed part of a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker_flags", default="", help="more of them, with spaces")
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build/bench/mixed.json")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the worker ends with this

    worker = fleet.start_worker(arguments.model, f"--max_running={arguments.streams}",
                                "--max_context_tokens=4096", "--speculation=off",
                                *arguments.worker_flags.split())
    lengths = {"prompt_tokens": arguments.prompt_tokens, "output_tokens": arguments.output_tokens}
    rounds = []
    for seed in range(arguments.rounds):
        full = bench(worker, seed, concurrency=arguments.streams, requests=3 * arguments.streams,
                     **lengths)
        decoding = bench(worker, seed, concurrency=arguments.streams, requests=arguments.streams,
                         prompt_tokens=1, output_tokens=arguments.output_tokens)
        capacity = full["throughput"]["output_tokens_per_second"]
        rate = arguments.load * capacity / arguments.output_tokens
        mixed = bench(worker, seed, rate=rate, requests=arguments.requests, **lengths)
        between = mixed["latency_seconds"]["inter_token"]
        one = {"capacity": capacity,
               "decode_ms": decoding["latency_seconds"]["inter_token"]["p50"] * 1e3,
               "p50_ms": between["p50"] * 1e3,
               "p99_ms": between["p99"] * 1e3}
        one["ratio"] = one["p99_ms"] / one["decode_ms"]
        rounds.append(one)
        print(f"  capacity {one['capacity']:.1f} tok/s; a step of {arguments.streams} "
              f"{one['decode_ms']:.1f} ms; at {arguments.load:.0%} between tokens p50 "
              f"{one['p50_ms']:.1f}, p99 {one['p99_ms']:.1f} ms: {one['ratio']:.2f} times", flush=True)
    worker.kill()
    ratio = statistics.median(one["ratio"] for one in rounds)
    print(f"median {ratio:.2f} times a step that only decodes (goal: 1.5)")
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    arguments.json.write_text(json.dumps({"flags": vars(arguments) | {"json": None},
                                          "rounds": rounds, "ratio": ratio}, indent=1))


if __name__ == "__main__":
    main()
