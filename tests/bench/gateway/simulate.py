#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`continuo simulate` beside a real fleet under `continuo bench`, at three loads.

A gateway and a worker, with a model of seeded random weights or with --model. At each load `continuo trace --cost`
learns the cost of a step while `continuo bench` runs; then the bench and a simulation with the same flags and that
cost are compared: time to first token and between tokens, p50 and p99, and tokens a second. Prints a table, writes
build/bench/simulate.json, and ends with 1 where a figure is off by more than --limit. Wants a machine with
nothing else to do, so it tells how many others wanted to run: the load average less the fleet's own.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402
from overload import CONFIG  # noqa: E402

LOAD = ["--prompt_tokens=exponential:192", "--output_tokens=uniform:16:96"]
FIGURES = [("time_to_first_token", "p50"), ("time_to_first_token", "p99"), ("inter_token", "p50"),
           ("inter_token", "p99")]


def run(command, *flags):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([str(fleet.BIN / "continuo"), command, f"--json={out.name}", *LOAD, *flags],
                       stdout=subprocess.DEVNULL, check=False)
        return json.load(open(out.name))


def run_and_learn(worker, cost, seconds, *flags):
    """Runs a bench of so many seconds and writes what the worker's steps cost meanwhile."""
    trace = subprocess.Popen(
        [str(fleet.BIN / "continuo"), "trace", f"--worker={worker.address}", "--out=/dev/null",
         f"--duration={seconds}s", f"--cost={cost}"])
    try:
        report = run("bench", f"--duration={seconds}s", *flags)
        if trace.wait() != 0:
            sys.exit("no cost was learnt")
        return report
    finally:
        trace.kill()


def figures(report):
    latencies = report["latency_seconds"]
    values = {f"{name} {part}": latencies[name][part] for name, part in FIGURES}
    values["tokens/s"] = report["throughput"]["output_tokens_per_second"]
    return values


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="of each load")
    parser.add_argument("--model", help="a folder or file, instead of random weights")
    parser.add_argument("--weights", default="auto", help="of the worker (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="of the worker")
    parser.add_argument("--loads", default="0.3,0.6,0.85", help="shares of the peak's requests per second")
    parser.add_argument("--limit", type=float, default=0.1, help="largest difference, as a share")
    parser.add_argument("--json", default=str(ROOT / "build/bench/simulate.json"))
    options = parser.parse_args()
    batch = 16
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model = options.model
        if not model:
            model = folder / "model"
            (folder / "config.json").write_text(json.dumps(CONFIG))
            subprocess.run([str(fleet.BIN / "continuo-make-model"), f"--config={folder}/config.json",
                            f"--out={model}", "--seed=1"], check=True, stdout=subprocess.DEVNULL)
        worker = fleet.start_worker(model, f"--threads={options.threads}", "--speculation=off",
                                    f"--weights={options.weights}", f"--max_running={batch}",
                                    "--kv_cache_memory=512MiB")
        gateway = fleet.start_gateway([worker])
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        client.channel.close()
        server = f"--server={gateway.address}"
        peak = run("bench", server, f"--concurrency={batch}", f"--duration={options.seconds // 2}s",
                   "--seed=7")["throughput"]["requests_per_second"]
        results = []
        for seed, share in enumerate(float(s) for s in options.loads.split(",")):
            flags = [f"--rate={share * peak:.3f}", f"--seed={seed}"]
            cost = folder / f"cost{seed}.json"
            measured = figures(run_and_learn(worker, cost, options.seconds, server, *flags))
            others = max(0.0, os.getloadavg()[0] - options.threads)
            simulated = figures(run("simulate", f"--cost={cost}", f"--duration={options.seconds}s", *flags))
            results.append({"share": share, "others": others, "measured": measured,
                            "simulated": simulated, "cost": json.loads(cost.read_text())})
        for program in (gateway, worker):
            program.terminate()

    out = pathlib.Path(options.json)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"peak": peak, "loads": results}, indent=1))
    misses = 0
    print(f"{'load':>6}  {'figure':26}{'measured':>12}{'simulated':>12}{'ratio':>8}")
    for result in results:
        for name, measured in result["measured"].items():
            simulated = result["simulated"][name]
            ratio = simulated / measured if measured > 0 else float("inf")
            off = abs(ratio - 1) > options.limit
            misses += off
            print(f"{result['share']:6.0%}  {name:26}{measured:12.5g}{simulated:12.5g}{ratio:8.3f}"
                  f"{'  off' if off else ''}")
    others = max(result["others"] for result in results)
    if others > 1:
        print(f"about {others:.0f} others wanted to run meanwhile: the measured figures are not those of this fleet")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
