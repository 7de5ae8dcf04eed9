#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What masks cost a step at a vocabulary of 152k: 16 answers to a schema or a regular expression beside 16 free ones,
and how far apart the tokens of a free neighbour are meanwhile.

The model has the shape of Qwen3-0.6B, random weights and Qwen3's tokenizer (CONTINUO_SHARED), so its masks are those of
any text. Kinds take turns, round after round, on one worker of one rank, whose masks its steps wait for. Prints a table:
medians of the rounds. tests/bench/README.md says when such figures are worth something.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import grpc  # noqa: E402

import fleet  # noqa: E402
from fleet import pb  # noqa: E402

PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "city": {"enum": ["Oslo", "Lima", "Rome", "Cairo", "Kyoto"]}}, "required": ["name", "age", "city"],
    "additionalProperties": False}
KINDS = {
    "free": {},
    "schema": {"json_schema": json.dumps({"type": "array", "items": PERSON, "minItems": 1000})},
    "regex": {"regex": r"([A-Z][a-z]{1,9} is [0-9]{1,2} and lives in [A-Z][a-z]+\. )+"},
    "counted class": {"regex": r"([\w ,]{10,200}\.)+"},
}


def request(number, tokens, constraint):
    made = pb.GenerateRequest(text=f"The {number}th list:\n")
    made.sampling.seed = number
    made.sampling.temperature = 1
    made.stopping.max_tokens = tokens
    made.stopping.ignore_eos = True
    for field, value in constraint.items():
        setattr(made.constraint, field, value)
    return made


def measured(worker, client, streams, tokens, constraint):
    """Of one run: milliseconds of a step, of them in masks, and between tokens of a free neighbour."""
    before = fleet.scrape(worker.metrics_address)
    times, done = [], threading.Event()
    neighbour = client.inference.Generate(request(1000, 4 * tokens, {}))

    def watch():
        try:
            for _ in neighbour:
                times.append(time.monotonic())
        except grpc.RpcError as error:
            if not done.is_set():
                raise error
    watcher = threading.Thread(target=watch)
    watcher.start()
    with concurrent.futures.ThreadPoolExecutor(streams) as pool:
        list(pool.map(lambda i: client.generate(request(i, tokens, constraint), timeout=600), range(streams)))
    done.set()
    neighbour.cancel()
    watcher.join()
    after = fleet.scrape(worker.metrics_address)

    def grown(name):
        return sum(value - before.get(series, 0) for series, value in after.items()
                   if series.split("{")[0] == name)
    steps = grown("continuo_step_seconds_count")
    # The middle of the run: all answers are under way.
    part = times[len(times) // 4: -len(times) // 4 or None]
    gaps = sorted(b - a for a, b in zip(part, part[1:]))
    return {"step_ms": 1e3 * grown("continuo_step_seconds_sum") / steps,
            "mask_ms": 1e3 * grown("continuo_mask_seconds_sum") / steps,
            "neighbour_ms": 1e3 * statistics.median(gaps)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=96, help="of an answer (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--weights", default="bf16")
    options = parser.parse_args()
    shared = pathlib.Path(os.environ.get("CONTINUO_SHARED", ROOT.parent / "shared"))
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        subprocess.run([fleet.BIN / "continuo-make-model", "--shape=qwen3-0.6b", f"--out={model}",
                        f"--tokenizer={shared}/data/tokenizers/assembled/qwen3"], check=True, stdout=subprocess.DEVNULL)
        worker = fleet.start_worker(model, f"--weights={options.weights}", "--speculation=off", "--max_context_tokens=4096")
        try:
            client = fleet.Client(worker.address)
            client.wait_for_model()
            cells = {kind: [] for kind in KINDS}
            for round_number in range(-1, options.rounds):
                for kind, constraint in KINDS.items():
                    cell = measured(worker, client, options.streams, options.tokens if round_number >= 0 else 8, constraint)
                    if round_number >= 0:  # the first one compiles
                        cells[kind].append(cell)
        finally:
            worker.kill()
    print(f"{options.streams} answers of {options.tokens} tokens, {options.rounds} rounds, --weights={options.weights}")
    print(f"{'answers':16}{'step, ms':>10}{'masks, ms':>11}{'of the step':>13}{'neighbour, ms':>15}")
    for kind, rounds in cells.items():
        step, mask, neighbour = (statistics.median(r[key] for r in rounds) for key in ("step_ms", "mask_ms", "neighbour_ms"))
        print(f"{kind:16}{step:>10.1f}{mask:>11.3f}{mask / step:>13.1%}{neighbour:>15.1f}")


if __name__ == "__main__":
    main()
