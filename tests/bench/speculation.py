#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much speculation saves where an answer repeats itself, and costs where it does not:
CPU time of a worker a token, with and without, in turn, for one sequence at a time.

    build/venv/bin/python tests/bench/speculation.py MODEL [--draft_model=DIR] [--mtp] [--tokens=60] [--rounds=5]

MODEL is a folder as continuo-make-model writes it. Greedy answers of random weights soon go in circles:
those are the ones that repeat. At a high temperature they do not. draft_pair.py makes a pair of models to
measure a draft model with, or a model whose module for multi-token prediction agrees with it (--mtp). Ends non-zero where any answer of the workers differs. Prints a table and writes build/bench/speculation.json.
"""
import argparse
import json
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

KINDS = {"repeats": 0, "does not repeat": 1.5}  # temperatures
COUNTERS = {"drafts": "continuo_draft_tokens_total", "accepted": "continuo_accepted_draft_tokens_total"}


def cpu_seconds(worker):
    fields = pathlib.Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def make_request(temperature, tokens):
    request = pb.GenerateRequest()
    request.token_ids.ids.extend([100 + 7 * i % 90 for i in range(24)] * 8)
    request.sampling.temperature = temperature
    request.sampling.seed = 5
    request.stopping.max_tokens = tokens
    request.stopping.ignore_eos = True
    return request


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--draft_model")
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    modes = {"off": (), "lookup": ()}
    if options.draft_model:
        modes["draft"] = (f"--draft_model={options.draft_model}",)
    if options.mtp:
        modes["mtp"] = ()
    workers = {mode: fleet.start_worker(options.model, f"--speculation={mode}", "--threads=1",
                                        "--kv_blocks=600", "--max_context_tokens=2048", *flags)
               for mode, flags in modes.items()}
    clients = {mode: fleet.Client(worker.address) for mode, worker in workers.items()}
    for client in clients.values():
        client.wait_for_model()
    report = {}
    for kind, temperature in KINDS.items():
        request = make_request(temperature, options.tokens)
        answers = [client.generate(request).comparable() for client in clients.values()]
        if any(answer != answers[0] for answer in answers):
            sys.exit(f"the answers differ: {answers}")
        samples = {mode: [] for mode in workers}
        for _ in range(options.rounds):
            for mode, worker in workers.items():
                before = cpu_seconds(worker)
                if clients[mode].generate(request).comparable() != answers[0]:
                    sys.exit(f"an answer of {mode} differs")
                samples[mode].append(1000 * (cpu_seconds(worker) - before) / options.tokens)
        medians = {mode: statistics.median(values) for mode, values in samples.items()}
        ratios = {mode: medians["off"] / ms for mode, ms in medians.items()}
        report[kind] = {"cpu_ms_per_token": samples, "times_as_fast": ratios}
        print(f"{kind:<18}" + "".join(f"{mode:>10} {ms:6.2f} ms/token, {ratios[mode]:.2f} x"
                                      for mode, ms in medians.items()), flush=True)
    for mode, worker in workers.items():
        page = fleet.scrape(worker.metrics_address)
        report[mode] = {name: sum(value for series, value in page.items() if series.startswith(counter))
                        for name, counter in COUNTERS.items()}
        print(f"{mode}: {report[mode]['drafts']:.0f} drafts, {report[mode]['accepted']:.0f} accepted")
    out = ROOT / "build/bench/speculation.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    for worker in workers.values():
        worker.terminate()


if __name__ == "__main__":
    main()
