#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens a second with and without a grammar, of Continuo and of vLLM on the CPU, on the same weights
and in one run: free answers, answers to a schema and to a regular expression, at 1 and 16 streams.

A grammar's answers are too long to end by themselves, so all have --output tokens. Servers and kinds
take turns, round after round; servers that wait are stopped. Ours runs with --speculation=off.

Prints a table, writes JSON, and ends non-zero where a server could not be run or a request failed.
tests/bench/peers/setup.sh vllm installs the peer, scripts/setup.sh --all the model.
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from load import drive  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
PERSON = {"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
    "city": {"enum": ["Oslo", "Lima", "Rome", "Cairo", "Kyoto"]}, "tags": {
        "type": "array", "items": {"type": "string"}, "maxItems": 3}},
    "required": ["name", "age", "city", "tags"], "additionalProperties": False}
# More members of a request.
KINDS = {
    "free": {},
    "schema": {"structured_outputs": {"json": {"type": "array", "items": PERSON, "minItems": 1000}}},
    "regex": {"structured_outputs": {"regex": r"([A-Z][a-z]{1,9} is [0-9]{1,2} and lives in [A-Z][a-z]+\. )+"}},
}


def guided_items(count, tokens):
    """Prompts, each another one, and the length of their answers."""
    return [(f"People who came to the {number}th meeting, with their ages and cities:\n", tokens)
            for number in range(1, count + 1)]


def guided_table(cells):
    lines = [f"{'server':12}{'streams':>8}{'answers':>10}{'tok/s':>9}{'of free':>9}{'ITL p50':>9} ms"]
    for streams, servers in cells.items():
        for name, kinds in servers.items():
            def rate(kind):
                return statistics.median(r["output_tokens_per_second"] for r in kinds[kind])
            for kind, rounds in kinds.items():
                gap = statistics.median(r["inter_token_s"]["p50"] for r in rounds)
                lines.append(f"{name:12}{streams:>8}{kind:>10}{rate(kind):9.1f}"
                             f"{rate(kind) / rate('free'):9.2f}{gap * 1e3:9.1f}")
    return "\n".join(lines)


def main():
    from cpu import OUT, STARTERS, wait_until_ready
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "build/smollm2/SmolLM2-135M-Instruct")
    parser.add_argument("--weights", default="bf16", choices=["bf16", "fp32"], help="vLLM: bf16 (%(default)s)")
    parser.add_argument("--streams", default="1,16", help="at once (%(default)s)")
    parser.add_argument("--requests", type=int, default=2, help="a stream (%(default)s)")
    parser.add_argument("--output", type=int, default=96, help="tokens (%(default)s)")
    parser.add_argument("--context", type=int, default=512, help="tokens a request may have (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--servers", default="continuo,vllm", help="(%(default)s)")
    parser.add_argument("--json", type=pathlib.Path, default=OUT / "guided.json")
    arguments = parser.parse_args()
    streams = [int(s) for s in arguments.streams.split(",")]
    OUT.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the servers end with this
    servers, failed, cells = [], [], {}
    try:
        for name in arguments.servers.split(","):
            try:
                server = STARTERS[name](arguments.model, arguments.weights, arguments.threads, max(streams),
                                        arguments.context)
                servers.append(server)
                wait_until_ready(name if name != "continuo" else "gateway", server.address, server.groups[-1])
                # Grammars are compiled once.
                for members in KINDS.values():
                    drive(server.address, server.model, guided_items(1, 8), 1, members)
                server.signal(signal.SIGSTOP)
                print(f"  {name} is ready", flush=True)
            except (OSError, RuntimeError, ExceptionGroup) as error:
                failed.append(f"{name}: {error}")
                servers = [s for s in servers if s.name != name or s.end()]
        for count in streams:
            cell = cells[str(count)] = {s.name: {kind: [] for kind in KINDS} for s in servers}
            for _ in range(arguments.rounds):
                for server in servers:
                    for kind, members in KINDS.items():
                        items = guided_items(count * arguments.requests, arguments.output)
                        cell[server.name][kind].append(server.measure(
                            lambda: drive(server.address, server.model, items, count, members)))
            print(guided_table({str(count): cell}), flush=True)
    finally:
        for server in servers:
            server.end()
    arguments.json.write_text(json.dumps({
        "model": arguments.model.name, "weights": arguments.weights, "threads": arguments.threads,
        "output_tokens": arguments.output, "cells": cells, "failed": failed}, indent=1))
    print(guided_table(cells))
    if failed or not servers:
        sys.exit("guided: " + "\n".join(failed))


if __name__ == "__main__":
    main()
