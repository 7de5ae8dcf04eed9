#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`kill -9` of a worker under 16 streams, many times at random moments.

Greedy, seeded, several sequences, stops, penalties, log-probabilities and text prompts are mixed;
text, ids, log-probabilities and usage (but cached_prompt_tokens) of every stream equal those of an
undisturbed run. One worker serves all streams; its successor is started before or after it dies.
"""
import argparse
import concurrent.futures
import pathlib
import random
import signal
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from traffic import make_request  # noqa: E402

class Round:
    """16 streams at once; tells when enough has been delivered."""

    def __init__(self, client, requests, suffix):
        self.client, self.requests, self.suffix = client, requests, suffix
        self.delivered = [0] * len(requests)
        self.held_back = [False] * len(requests)  # the last ids came without their text
        self.done = [False] * len(requests)
        self.at_kill = None
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
                self.changed.notify_all()
        try:
            return self.client.generate(request, on_response=seen)
        finally:
            with self.changed:
                self.done[i] = True
                self.changed.notify_all()

    def wait_for(self, num_tokens, every_stream):
        with self.changed:
            self.changed.wait_for(
                lambda: all(self.done) or (
                    sum(self.delivered) >= num_tokens and
                    (not every_stream or all(n > 0 for n in self.delivered))), timeout=120)
            self.at_kill = list(self.delivered), list(self.done), list(self.held_back)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=str(fleet.DEMO_MODEL))
    options = parser.parse_args()
    rng = random.Random(options.seed)
    flags = ["--kv_blocks=1024", "--threads=1"]

    reference_worker = fleet.start_worker(options.model, *flags)
    client = fleet.Client(reference_worker.address)
    chat = pb.CAPABILITY_CHAT in client.wait_for_model().capabilities
    requests = [make_request(i, chat) for i in range(16)]
    reference = [client.generate(r).comparable() for r in requests]
    reference_worker.terminate()
    total = sum(len(ids) for r in reference for ids in r["ids"].values())
    print(f"undisturbed: {total} tokens", flush=True)

    ports = [fleet.free_port() for _ in range(2)]
    workers = [fleet.start_worker(options.model, *flags, port=ports[0]), None]
    gateway = fleet.start_gateway(",".join(f"127.0.0.1:{p}" for p in ports))
    client = fleet.Client(gateway.address)
    client.wait_for_model()
    kills = moves = between = held_back = in_prefill = differ = number = 0
    while kills < options.kills:
        number += 1
        live = 0 if workers[0] else 1
        streams = Round(client, requests, number)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            futures = [pool.submit(streams.run_one, i) for i in range(16)]
            # Two workers in a row in every fourth round.
            for _ in range(2 if number % 4 == 0 else 1):
                late = rng.random() < 0.3
                prefill = rng.random() < 0.1
                if not late:
                    workers[1 - live] = fleet.start_worker(options.model, *flags,
                                                           port=ports[1 - live], wait=False)
                already = sum(streams.delivered)
                streams.wait_for(0 if prefill else already + rng.randrange(1, max(2, (
                    total - already) // 2)), every_stream=not prefill)
                workers[live].kill()
                kills += 1
                if late:
                    workers[1 - live] = fleet.start_worker(options.model, *flags,
                                                           port=ports[1 - live], wait=False)
                tokens, done, held = streams.at_kill
                held_back += sum(1 for h, d in zip(held, done) if h and not d)
                between += sum(1 for n, d in zip(tokens, done) if n > 0 and not d)
                in_prefill += sum(1 for n in tokens if n == 0)
                workers[live], live = None, 1 - live
                workers[live].wait_until_listening()
            answers = [f.result() for f in futures]
        for i, answer in enumerate(answers):
            moves += answer.summary.migrations
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
    print(f"{kills} kills, {number * 16} streams, {between} cut between ids, {held_back} "
          f"with text held back, {in_prefill} before the first, {moves} moves in summaries, {counted:.0f} counted by the gateway, "
          f"{differ} differ", flush=True)
    status = gateway.terminate()
    ok = differ == 0 and moves >= min(50, options.kills // 2) and between > 0 and held_back > 0 and status == 0
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
