#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much speculation saves where an answer repeats itself, and costs where it does not:
CPU time of a worker a token, with and without, in turn, for one sequence at a time.

    build/venv/bin/python tests/bench/speculation.py MODEL [--draft_model=DIR] [--mtp] [--tokens=60] [--rounds=5]
                                                     [--prompts=N]

MODEL is a folder as continuo-make-model writes it. Greedy answers of random weights soon go in circles:
those are the ones that repeat. At a high temperature they do not. draft_pair.py makes a pair of models to
measure a draft model with, or a model whose module for multi-token prediction agrees with it (--mtp).

With --prompts, for a real model (scripts/real_model.sh --folder): greedy answers to N prompts of each kind of the
shared conversations (Spec-Bench) and to N functions to be completed (HumanEval), up to --tokens each. All prompts stay
in the prefix cache, so that the time is that of the answers.

Ends non-zero where any answer of the workers differs. Prints a table and writes build/bench/speculation.json.
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

PROMPTS = fleet.SHARED / "data/prompts"
COUNTERS = {"drafts": "continuo_draft_tokens_total", "accepted": "continuo_accepted_draft_tokens_total"}


def cpu_seconds(worker):
    fields = pathlib.Path(f"/proc/{worker.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def random_requests(tokens):
    """The requests of each kind for a model of random weights."""
    requests = {}
    for kind, temperature in (("repeats", 0), ("does not repeat", 1.5)):
        request = pb.GenerateRequest()
        request.token_ids.ids.extend([100 + 7 * i % 90 for i in range(24)] * 8)
        request.sampling.temperature = temperature
        request.sampling.seed = 5
        request.stopping.max_tokens = tokens
        request.stopping.ignore_eos = True
        requests[kind] = [request]
    return requests


def conversations(number, tokens):
    """The requests of each kind of the shared prompts."""
    texts = {}
    for line in (PROMPTS / "spec_bench_mtbench_gsm8k.jsonl").read_text().splitlines():
        prompt = json.loads(line)
        texts.setdefault(prompt["category"], []).append(prompt["turns"][0])
    texts["HumanEval"] = ["Complete this function:\n\n```python\n" + json.loads(line)["prompt"] + "```"
                          for line in (PROMPTS / "HumanEval.jsonl").read_text().splitlines()]
    requests = {}
    for kind, all_of_kind in texts.items():
        for text in all_of_kind[:number]:
            request = pb.GenerateRequest()
            request.conversation.messages.add(role="user", content=text)
            request.sampling.temperature = 0
            request.sampling.seed = 5
            request.stopping.max_tokens = tokens
            requests.setdefault(kind, []).append(request)
    return requests


def drafts(worker):
    page = fleet.scrape(worker.metrics_address)
    return {name: sum(value for series, value in page.items() if series.startswith(counter))
            for name, counter in COUNTERS.items()}


def ask(client, requests):
    return [client.generate(request, timeout=600).comparable() for request in requests]


def num_tokens(answers):
    return sum(len(ids) for answer in answers for ids in answer["ids"].values())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--draft_model")
    parser.add_argument("--mtp", action="store_true")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int)
    options = parser.parse_args()
    modes = {"off": (), "lookup": ()}
    if options.draft_model:
        modes["draft"] = (f"--draft_model={options.draft_model}",)
    if options.mtp:
        modes["mtp"] = ()
    workers = {mode: fleet.start_worker(options.model, f"--speculation={mode}", "--threads=1",
                                        "--kv_cache_memory=2GiB" if options.prompts else "--kv_blocks=600",
                                        "--max_context_tokens=2048", *flags)
               for mode, flags in modes.items()}
    clients = {mode: fleet.Client(worker.address) for mode, worker in workers.items()}
    for client in clients.values():
        client.wait_for_model()
    kinds = conversations(options.prompts, options.tokens) if options.prompts else random_requests(options.tokens)
    report = {}
    for kind, requests in kinds.items():
        answers = [ask(client, requests) for client in clients.values()]
        if any(answer != answers[0] for answer in answers):
            sys.exit(f"the answers differ: {answers}")
        tokens = num_tokens(answers[0])
        samples = {mode: [] for mode in workers}
        before = {mode: drafts(worker) for mode, worker in workers.items()}
        for _ in range(options.rounds):
            for mode, worker in workers.items():
                start = cpu_seconds(worker)
                if ask(clients[mode], requests) != answers[0]:
                    sys.exit(f"an answer of {mode} differs")
                samples[mode].append(1000 * (cpu_seconds(worker) - start) / tokens)
        medians = {mode: statistics.median(values) for mode, values in samples.items()}
        ratios = {mode: medians["off"] / ms for mode, ms in medians.items()}
        counted = {mode: {name: (value - before[mode][name]) / options.rounds
                          for name, value in drafts(worker).items()} for mode, worker in workers.items()}
        report[kind] = {"tokens": tokens, "cpu_ms_per_token": samples, "times_as_fast": ratios, "counted": counted}
        print(f"{kind:<16}{tokens:6} tokens: " + "; ".join(
            f"{mode} {ms:.2f} ms/token, {ratios[mode]:.2f} x, {counted[mode]['accepted']:.0f} of "
            f"{counted[mode]['drafts']:.0f} drafts accepted" for mode, ms in medians.items()), flush=True)
    out = ROOT / "build/bench/speculation.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(report, indent=1) + "\n")
    for worker in workers.values():
        worker.terminate()


if __name__ == "__main__":
    main()
