#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of WatchSteps for a step: CPU of the whole worker and wall time for each step
and each token, with and without somebody who watches (`continuo trace` into /dev/null), by turns.

The worker computes on one thread, so that no thread waits in a loop and the watcher has a core of
its own. Each watched phase is compared with the phases before and after it; the figures are medians
of these ratios with their quartiles, which tell what a run on this machine can resolve. The parts
alone, without that noise: build/release/bench/watch_steps_bench. Prints a table and writes
build/bench/watch-steps.json.

    tests/bench/engine/watch_steps.py [--model=DIR] [--streams=16] [--rounds=20] [--phase=1.5]
"""
import argparse
import json
import pathlib
import signal
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402


def cpu_s(pid):
    """CPU seconds of all threads that live."""
    total = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class Phases:
    """Measures phase after phase, which differ only in whether somebody watches."""

    def __init__(self, worker, seconds):
        self.worker, self.seconds = worker, seconds

    def counters(self):
        series = fleet.scrape(self.worker.metrics_address)
        values = {}
        for name in ("continuo_step_seconds_count", "continuo_generated_tokens_total"):
            values[name] = sum(v for k, v in series.items() if k.split("{")[0] == name)
        return (*values.values(), cpu_s(self.worker.process.pid), time.monotonic())

    def measure(self):
        before = self.counters()
        time.sleep(self.seconds)  # the phase
        after = self.counters()
        steps, tokens, cpu, wall = (b - a for a, b in zip(before, after))
        return {"steps": steps, "tokens": tokens, "cpu_us_a_step": cpu / steps * 1e6,
                "wall_us_a_step": wall / steps * 1e6, "cpu_us_a_token": cpu / tokens * 1e6}

    def watched(self):
        watcher = subprocess.Popen([fleet.BIN / "continuo", "trace", "--out=/dev/null",
                                    f"--worker={self.worker.address}", "--duration=1h"],
                                   stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)  # it connects
        result = self.measure()
        watcher.send_signal(signal.SIGINT)
        told = watcher.communicate(timeout=30)[1]
        if " 0 steps," in told:
            raise RuntimeError(f"nothing was watched: {told}")
        result["told"] = told.strip()
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(fleet.DEMO_MODEL))
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--phase", type=float, default=1.5, help="seconds")
    parser.add_argument("--json", default=str(ROOT / "build/bench/watch-steps.json"))
    arguments = parser.parse_args()

    worker = fleet.start_worker(arguments.model, "--threads=1", "--max_context_tokens=1024")
    load = subprocess.Popen([fleet.BIN / "continuo", "bench", f"--server={worker.address}",
                             f"--concurrency={arguments.streams}", "--duration=1h",
                             "--prompt_tokens=16", "--output_tokens=uniform:1:900", "--bypass_cache"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    phases = Phases(worker, arguments.phase)
    try:
        phases.measure()  # warm
        alone, watched = [phases.measure()], []
        for _ in range(arguments.rounds):
            watched.append(phases.watched())
            alone.append(phases.measure())
    finally:
        load.send_signal(signal.SIGINT)
        load.wait(60)
        worker.kill()
    result = {"model": pathlib.Path(arguments.model).name, "streams": arguments.streams,
              "rounds": arguments.rounds, "alone": alone, "watched": watched}
    for key in ("cpu_us_a_step", "wall_us_a_step", "cpu_us_a_token"):
        ratios = [w[key] / statistics.mean((a[key], b[key]))
                  for a, w, b in zip(alone, watched, alone[1:])]
        low, middle, high = statistics.quantiles(ratios, n=4)
        result[key] = {"alone": statistics.median(a[key] for a in alone),
                       "watched": statistics.median(w[key] for w in watched),
                       "ratio": middle, "quartiles": [low, high]}
        print(f"{key:16} alone {result[key]['alone']:10.1f}  watched "
              f"{result[key]['watched']:10.1f}  ratio {middle:.4f} ({low:.4f} to {high:.4f})")
    pathlib.Path(arguments.json).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(arguments.json).write_text(json.dumps(result, indent=1))
    print(watched[-1]["told"])


if __name__ == "__main__":
    main()
