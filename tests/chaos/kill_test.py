#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of a worker under 16 streams, many times at random moments.

Greedy, seeded, several sequences, stops, penalties, log-probabilities and text prompts are mixed;
text, ids, log-probabilities and usage (but cached_prompt_tokens) of every stream equal those of an
undisturbed run. One worker serves all streams; its successor is started before or after it dies.
Counted, and required of a run of 100 kills: each of the 16 streams cut with some but not all ids
received, and kills in prefill, between ids that hold text back, of two workers in a row, and with
the only other worker starting late. Told: how long streams stalled, from a worker's loss to the next
one's first response, which is when its prompt and what was received have been computed.
"""
import argparse
import collections
import concurrent.futures
import math
import pathlib
import random
import sys
import tempfile
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from models import state_models  # noqa: E402
from traffic import make_request  # noqa: E402

NUM_STREAMS = 16
LONG_PROMPT = 14  # its prompt takes many steps


def make_requests(chat):
    requests = [make_request(i, chat) for i in range(NUM_STREAMS)]
    for request in requests:
        request.output.progress = True
    rng = random.Random(1)
    requests[LONG_PROMPT].token_ids.ids[:] = [rng.randrange(10, 400) for _ in range(700)]
    requests[LONG_PROMPT].cache.bypass = True
    return requests


class Round:
    """All streams at once; tells when enough has been delivered."""

    def __init__(self, client, requests, suffix):
        self.client, self.requests, self.suffix = client, requests, suffix
        self.delivered = [0] * len(requests)
        self.held_back = [False] * len(requests)  # the last ids came without their text
        self.in_prefill = [False] * len(requests)  # some of the prompt is computed, not all
        self.done = [False] * len(requests)
        self.changed = threading.Condition()

    def run_one(self, i):
        request = pb.GenerateRequest()
        request.CopyFrom(self.requests[i])
        request.request_id = f"kill-{self.suffix}-{i}"

        def seen(response):
            with self.changed:
                self.delivered[i] += sum(len(d.token_ids) for d in response.deltas)
                self.held_back[i] = bool(self.requests[i].stopping.strings) and any(
                    d.token_ids and not d.text for d in response.deltas)
                prompt = response.progress
                self.in_prefill[i] = 0 < prompt.prompt_tokens_done < prompt.prompt_tokens
                self.changed.notify_all()
        try:
            return self.client.generate(request, on_response=seen)
        finally:
            with self.changed:
                self.done[i] = True
                self.changed.notify_all()

    def wait_for_prefill(self):
        with self.changed:
            self.changed.wait_for(lambda: all(self.done) or any(self.in_prefill), timeout=120)

    def wait_for_tokens(self, count):
        """Waits until this many tokens were delivered, and some to every stream."""
        with self.changed:
            self.changed.wait_for(
                lambda: all(self.done) or (sum(self.delivered) >= count and
                                           all(n > 0 for n in self.delivered)), timeout=120)

    def count_cuts(self, cuts):
        """Counts the streams that a kill at this moment cuts."""
        with self.changed:
            for i, done in enumerate(self.done):
                if done:
                    continue
                if self.delivered[i] > 0:
                    cuts[f"stream {i} between ids"] += 1
                cuts["in prefill"] += self.in_prefill[i]
                cuts["with text held back"] += self.held_back[i]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=str(fleet.DEMO_MODEL))
    parser.add_argument("--states", choices=state_models.FAMILIES, help="a tiny model with recurrent states instead")
    parser.add_argument("--mtp", action="store_true", help="its module for multi-token prediction drafts at one worker")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.states:
            options.model = state_models.make(options.states, pathlib.Path(folder), *["--mtp"] * options.mtp)
        return run(options)


def run(options):
    rng = random.Random(options.seed)
    flags = ["--kv_blocks=1024", "--threads=1", "--max_prefill_chunk=16"]

    reference_worker = fleet.start_worker(options.model, *flags)
    client = fleet.Client(reference_worker.address)
    chat = pb.CAPABILITY_CHAT in client.wait_for_model().capabilities
    requests = make_requests(chat)
    reference = [client.generate(r).comparable() for r in requests]
    reference_worker.terminate()
    total = sum(len(ids) for r in reference for ids in r["ids"].values())
    print(f"undisturbed: {total} tokens", flush=True)

    ports = [fleet.free_port() for _ in range(2)]

    def start(i, wait=False):
        own = ["--speculation=mtp"] if options.mtp and i == 1 else []
        return fleet.start_worker(options.model, *flags, *own, port=ports[i], wait=wait)
    workers = [start(0, wait=True), None]
    gateway = fleet.start_gateway(",".join(f"127.0.0.1:{p}" for p in ports))
    client = fleet.Client(gateway.address)
    client.wait_for_model()
    cuts = collections.Counter()
    kills = migrations = differ = number = 0
    while kills < options.kills:
        number += 1
        live = 0 if workers[0] else 1
        streams = Round(client, requests, number)
        with concurrent.futures.ThreadPoolExecutor(NUM_STREAMS) as pool:
            futures = [pool.submit(streams.run_one, i) for i in range(NUM_STREAMS)]
            in_a_row = 2 if number % 4 == 0 else 1
            for _ in range(in_a_row):
                late = rng.random() < 0.3
                already = sum(streams.delivered)
                count = already + rng.randrange(1, max(2, (total - already) // 2))
                if not late:
                    workers[1 - live] = start(1 - live)
                if rng.random() < 0.15:
                    streams.wait_for_prefill()
                else:
                    streams.wait_for_tokens(count)
                streams.count_cuts(cuts)
                workers[live].kill()
                kills += 1
                if late:
                    cuts["with the other worker late"] += not all(streams.done)
                    workers[1 - live] = start(1 - live)
                workers[live], live = None, 1 - live
                workers[live].wait_until_listening()
            cuts["two workers in a row"] += in_a_row == 2
            answers = [f.result() for f in futures]
        for i, answer in enumerate(answers):
            migrations += answer.summary.migrations
            got = answer.comparable()
            if got != reference[i]:
                differ += 1
                for key in got:
                    if got[key] != reference[i][key]:
                        print(f"round {number} stream {i}: {key} differs\n  {got[key]!r:.400}\n"
                              f"  {reference[i][key]!r:.400}")
            if answer.summary.inexact:
                differ += 1
                print(f"round {number} stream {i}: inexact")
    series = fleet.scrape(gateway.metrics_address)
    counted = sum(v for k, v in series.items()
                  if k.startswith("continuo_gateway_migrations_total"))
    stalls = {float(k.split('le="')[1].split('"')[0]): v for k, v in series.items()
              if k.startswith("continuo_gateway_migration_stall_seconds_bucket")}
    status = gateway.terminate()
    print(f"{kills} kills, {number * NUM_STREAMS} streams, {migrations} migrations in summaries, "
          f"{counted:.0f} counted by the gateway, {differ} differ", flush=True)
    print("stalls: " + ", ".join(f"{stalls[s]:.0f} within {s:g} s" for s in sorted(stalls)
                                 if s in (0.1, 0.5, 1, math.inf)), flush=True)
    wanted = [f"stream {i} between ids" for i in range(NUM_STREAMS)] + [
        "in prefill", "with text held back", "two workers in a row", "with the other worker late"]
    for what in wanted:
        print(f"  {cuts[what]:5} {what}")
    missing = [what for what in wanted if cuts[what] == 0]
    if options.kills >= 100 and missing:
        print("never happened:", ", ".join(missing))
        return 1
    ok = differ == 0 and migrations >= min(50, options.kills // 2) and counted >= migrations and status == 0
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
