#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two gateways, three workers, 40 kinds of requests at once, and faults at random moments: see
README.md. Start it with run.sh, which makes the network namespace that this needs."""
import argparse
import concurrent.futures
import json
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from clients import Clients  # noqa: E402
from faults import Faults  # noqa: E402
from network import Namespace  # noqa: E402
from nodes import GatewayNode, WorkerNode  # noqa: E402
from traffic import NUM_KINDS, make_request  # noqa: E402

# The scalar path is so slow that faults hit streams in the middle, and a full cache now and then.
WORKER_FLAGS = ["--kv_blocks=512", "--threads=1", "--isa=scalar", "--drain_grace=200ms"]
GATEWAY_FLAGS = ["--drain_grace=300ms"]
QUIET_TIMEOUT_S = 60
MEMORY_EVERY = 100  # faults
# gRPC gives up an attempt to connect, and frees its memory, after 20 s, also where nobody waits for
# it any more.
MEMORY_SECONDS = 25
MAX_GROWTH = 0.02  # from the first measurement to the last
# Printed only; the bounds are on heap, mapped and resident memory. A single page between two blocks
# of the heap is 0.2 % of a gateway's, and the number of such pages changes by more than 2 % up and
# down.
NOT_BOUNDED = ("anonymous",)
# gRPC's pools keep as many threads as were busy at once, and several faults at once can raise that
# number at any time.
MORE_THREADS = 2


def undisturbed(model):
    """The requests, and what each one's answer must be."""
    worker = fleet.start_worker(model, *WORKER_FLAGS)
    client = fleet.Client(worker.address)
    chat = pb.CAPABILITY_CHAT in client.wait_for_model().capabilities
    requests = [make_request(i, chat) for i in range(NUM_KINDS)]
    references = [client.generate(request).comparable() for request in requests]
    worker.terminate()
    return requests, references


class Fleet:
    def __init__(self, model):
        self.workers = [WorkerNode(i, Namespace(i + 1), model, WORKER_FLAGS) for i in range(3)]
        self.gateways = [GatewayNode(i, self.workers, GATEWAY_FLAGS) for i in range(2)]
        for node in self.nodes():
            node.start()
        for gateway in self.gateways:
            gateway.client.wait_for_model(len(self.workers))

    def nodes(self):
        return self.gateways + self.workers

    def answer_all_at_once(self, requests, references):
        """Tables and buffers of a step keep the size that the largest batch needed: here it is, on
        each node, larger than any that comes later."""
        for node in self.nodes():
            client = fleet.Client(node.address)
            with concurrent.futures.ThreadPoolExecutor(2 * len(requests)) as pool:
                answers = list(pool.map(client.generate, 2 * requests))
            assert [answer.comparable() for answer in answers] == 2 * references, node.name
            client.channel.close()

    def at_rest(self, expected=None):
        """The resources of each node once nothing runs and no client is connected. With `expected`
        it waits until they equal that, for at most a minute."""
        for gateway in self.gateways:
            gateway.client.wait_for_model(len(self.workers))
            gateway.reconnect()  # lazily: no connection until the next call
        give_up = time.monotonic() + QUIET_TIMEOUT_S
        previous, since = None, time.monotonic()
        while True:
            # This precedes holds(), whose own connection takes a moment to be closed at the other
            # end.
            descriptors = {node.name: node.descriptors() for node in self.nodes()}
            now = {node.name: {**node.holds(), "descriptors": descriptors[node.name]}
                   for node in self.nodes()}
            if now != previous:
                previous, since = now, time.monotonic()
            steady = time.monotonic() - since > 3
            if (now == expected if expected else steady) or time.monotonic() > give_up:
                break
            time.sleep(0.3)  # polls other processes; nothing to be notified by
        return now

    def memory_kib(self, first):
        """The memory of the nodes that never end: the least of some seconds, since memory of work
        in progress (a connection attempt, a report) is not kept. Stops early where nothing has
        grown beyond the bound since `first`; {} to begin with."""
        least = {}
        give_up = time.monotonic() + MEMORY_SECONDS
        while time.monotonic() < give_up:
            for node in (self.gateways[0], self.workers[0]):
                now = node.memory_kib()
                least[node.name] = {kind: min(kib, least.get(node.name, now)[kind])
                                    for kind, kib in now.items()}
            if first and not grown(first, least):
                break
            time.sleep(0.3)  # polls other processes; nothing to be notified by
        return least


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def grown(first, last):
    """The entries of {node: {kind: KiB}} that grew beyond the bound."""
    def bound(kind, before):
        return before + MORE_THREADS if kind == "threads" else before * (1 + MAX_GROWTH)
    return [f"{name}: {kind} grew from {first[name][kind]} to {now}"
            for name, kinds in last.items() for kind, now in kinds.items()
            if kind not in NOT_BOUNDED and now > bound(kind, first[name][kind])]


def print_table(report):
    def row(*cells):
        print(f"{cells[0]:<34}{cells[1]:>14}" + "".join(f"{c:>14}" for c in cells[2:]))
    for kind, count in sorted(report["faults"].items()):
        row(kind, count)
    for key in ("seed", "seconds", "streams", "tokens", "migrations", "reconnects", "cuts", "different",
                "errors"):
        row(key, report[key])
    for key, value in report["longest_pause_ms"].items():
        row(f"longest pause of a stream, {key}", f"{value} ms")
    for number, nodes in report["memory_kib"].items():
        for name, memory in nodes.items():
            row(f"{name}, KiB after {number} faults",
                ", ".join(f"{kind} {kib}" for kind, kib in memory.items()))
    row("at rest as before the faults", "yes" if report["at_rest_as_before"] else "NO")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--streams", type=int, default=12, help="open at a time")
    parser.add_argument("--model", default=str(fleet.DEMO_MODEL))
    parser.add_argument("--json", help="file for the report")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    requests, references = undisturbed(options.model)
    nodes = Fleet(options.model)
    clients = Clients(nodes.gateways, requests, references, options.streams, options.seed)
    faults = Faults(clients, nodes.gateways, nodes.workers, rng)

    # The first streams make the connections, threads and buffers that stay.
    nodes.answer_all_at_once(requests, references)
    clients.resume()
    clients.wait_for_tokens(30_000, timeout=60)
    clients.pause()
    before = nodes.at_rest()
    clients.gaps.clear()
    memory, unrest = {}, []
    begin = time.monotonic()
    clients.resume()
    for number in range(1, options.faults + 1):
        faults.inject()
        faults.go_on()
        if number % 50 == 0:
            print(f"{number} faults, {time.monotonic() - begin:.0f} s, {clients.num_streams} "
                  f"streams, {len(clients.differences)} differ, {len(clients.errors)} errors",
                  flush=True)
        if number % MEMORY_EVERY == 0 or number == options.faults:
            faults.repair()
            clients.pause()
            rest = nodes.at_rest(before)
            unrest += [f"{name} after {number} faults: {rest[name]} instead of {before[name]}"
                       for name in rest if rest[name] != before[name]]
            memory[number] = nodes.memory_kib(memory[min(memory)] if memory else {})
            print(f"{number} faults, KiB: {memory[number]}", flush=True)
            clients.resume()
    clients.end()
    print(f"{options.faults} faults done after {time.monotonic() - begin:.0f} s", flush=True)
    after = nodes.at_rest(before)

    seconds = time.monotonic() - begin
    report = {
        "seed": options.seed, "seconds": round(seconds), "faults": dict(faults.counts),
        "streams": clients.num_streams, "tokens": clients.tokens, "migrations": clients.migrations,
        "reconnects": clients.reconnects, "cuts": clients.cuts,
        "different": len(clients.differences),
        "errors": len(clients.errors),
        "longest_pause_ms": {f"p{100 * share:g}": round(1000 * percentile([gap for gap, _, _ in clients.gaps], share))
                             for share in (0.5, 0.99, 1)},
        "longest_pauses": [{"seconds": round(gap, 3), "until": round(when - begin, 3), "of": name}
                           for gap, when, name in sorted(clients.gaps, reverse=True)[:20]],
        "history": [{"at": round(when - begin, 3), "what": what} for when, what in faults.history],
        "memory_kib": memory,
        "at_rest_as_before": after == before, "at_rest": {"before": before, "after": after},
    }
    print_table(report)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(report, indent=1) + "\n")
    failures = clients.differences + [f"at {when - begin:.1f} s: {error}"
                                      for when, error in clients.errors]
    for name in after:
        if after[name] != before[name]:
            failures.append(f"{name} at rest: {after[name]} instead of {before[name]}")
    failures += unrest + grown(memory[min(memory)], memory[max(memory)])
    if len(memory) == 1:
        print(f"memory is not compared: there is one measurement, a run of more than {MEMORY_EVERY} "
              "faults has others")
    for failure in failures[:20]:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
