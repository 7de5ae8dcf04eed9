#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every worker and every gateway of a fleet is restarted, one after the other, at 70 % of the load
that it can carry; no request fails and every answer is that of an undisturbed run.

Half of the clients are stock ones: one channel over all gateways, round robin, with gRPC's own
health checks and retries; the gateways' grace is longer than a stream, so none of them is broken.
The other half continue: the gateway that serves them has next to no grace, and each of their
streams needs at most one reconnect, the next restart waiting for those that were cut. Prints a table; 0 failed requests or it exits with 1.
"""
import argparse
import collections
import json
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402
from traffic import make_request  # noqa: E402

NUM_WORKERS, NUM_KINDS = 3, 16
LOAD = 0.7
CAPACITY_STREAMS = 12
TIMEOUT_S = 120
ENOUGH_SERVED = 5
# The configuration that gRPC's documentation recommends to clients of several servers.
SERVICE_CONFIG = json.dumps({
    "loadBalancingConfig": [{"round_robin": {}}],
    "healthCheckConfig": {"serviceName": ""},
    "methodConfig": [{"name": [{"service": "continuo.v1.InferenceService"}], "retryPolicy": {
        "maxAttempts": 5, "initialBackoff": "0.05s", "maxBackoff": "1s", "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE"]}}]})


class Load:
    """Open-loop requests over the given ways; an answer is compared when it is complete."""

    def __init__(self, requests, references):
        self.requests, self.references = requests, references
        self.changed = threading.Condition()
        self.open = 0
        self.cut = set()  # open ones that had to reconnect
        self.counts, self.failures = collections.Counter(), []

    def send(self, way, kind, serial):
        with self.changed:
            self.open += 1
        threading.Thread(target=self._run, args=(way, kind, serial), daemon=True).start()

    def wait(self):
        with self.changed:
            if not self.changed.wait_for(lambda: self.open == 0, timeout=TIMEOUT_S):
                raise TimeoutError(f"{self.open} streams do not end")

    def wait_for_cut(self):
        with self.changed:
            if not self.changed.wait_for(lambda: not self.cut, timeout=TIMEOUT_S):
                raise TimeoutError(f"cut streams do not end: {self.cut}")

    def on_cut(self, request_id):
        with self.changed:
            self.cut.add(request_id)

    def _run(self, way, kind, serial):
        request = pb.GenerateRequest()
        request.CopyFrom(self.requests[kind])
        request.request_id = f"rolling-{way.name}-{serial}"
        failure = reconnects = None
        try:
            responses, reconnects = way.generate(request, self.on_cut)
            answer = fleet.Answer(responses)
            got, expected = answer.comparable(), self.references[kind]
            different = [key for key in got if got[key] != expected[key]]
            if different or answer.summary.inexact:
                failure = f"{request.request_id}: {different} differ"
            if reconnects > 1:
                failure = f"{request.request_id}: {reconnects} reconnects"
        except Exception as error:  # told at the end
            failure = f"{request.request_id}: {error!r:.500}"
        with self.changed:
            self.open -= 1
            self.cut.discard(request.request_id)
            self.counts[way.name] += 1
            if failure:
                self.failures.append(failure)
            else:
                self.counts["tokens"] += sum(len(ids) for ids in answer.ids.values())
                self.counts["migrations"] += answer.summary.migrations
                self.counts["reconnects"] += reconnects
            self.changed.notify_all()


class Stock:
    name = "stock"

    def __init__(self, gateways):
        self.channel = grpc.insecure_channel(
            "ipv4:" + ",".join(g.address for g in gateways),
            options=[("grpc.service_config", SERVICE_CONFIG)])
        self.stub = fleet.pb_grpc.InferenceServiceStub(self.channel)

    def generate(self, request, _on_cut):
        return list(self.stub.Generate(request, timeout=TIMEOUT_S)), 0


class Continuing:
    """A client of one gateway that goes on at the other one."""
    name = "continuing"

    def __init__(self, gateways):
        self.stubs = [fleet.Client(g.address).inference for g in gateways]

    def generate(self, request, on_cut):
        responses, reconnects = [], 0
        while True:
            try:
                stub = self.stubs[reconnects % len(self.stubs)]
                for response in stub.Generate(request, timeout=TIMEOUT_S):
                    responses.append(response)
                return responses, reconnects
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
            reconnects += 1
            on_cut(request.request_id)
            fleet.continue_after(request, responses)


def restart(places, load, restarted, logs):
    """Each in turn, as soon as the one before is back and what it cut has ended."""
    for name, place in places.items():
        program, start, back = place
        logs.append(program.lines)
        wait_for(program, "_open_streams" if "gateway" in name else "_running_requests", 1)
        if program.terminate(timeout=TIMEOUT_S) != 0:
            raise RuntimeError(f"{name} did not end well:\n" + "\n".join(program.lines[-20:]))
        place[0] = start()
        back()
        # A rolling update also waits for each pod to take its share.
        wait_for(place[0], "requests_total", ENOUGH_SERVED)
        load.wait_for_cut()
        restarted.append(name)


def wait_for(program, metric, value):
    """Waits until the series whose names have this ending sum up to the value."""
    while sum(v for k, v in fleet.scrape(program.metrics_address).items()
              if k.split("{")[0].endswith(metric)) < value:
        threading.Event().wait(0.02)  # polls another process; nothing to be notified by


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=str(fleet.DEMO_MODEL))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    flags = ["--kv_blocks=2048", "--threads=1", "--drain_grace=0s"]
    first = fleet.start_worker(options.model, *flags)
    client = fleet.Client(first.address)
    chat = pb.CAPABILITY_CHAT in client.wait_for_model().capabilities
    requests = [make_request(i, chat) for i in range(NUM_KINDS)]
    for request in requests:
        request.stopping.max_tokens = 500
    references = [client.generate(r).comparable() for r in requests]
    first.terminate()

    ports = [fleet.free_port() for _ in range(NUM_WORKERS)]
    addresses = ",".join(f"127.0.0.1:{port}" for port in ports)
    places = {}
    for i, port in enumerate(ports):
        start = lambda port=port: fleet.start_worker(options.model, *flags, port=port)
        places[f"worker {i}"] = [start(), start, None]
    # Two gateways with grace, for stock clients, and two without, for those that continue.
    gateways = []
    for i, grace in enumerate(["10m", "10m", "0s", "0s"]):
        start = lambda grace=grace, port=fleet.free_port(): fleet.start_gateway(
            addresses, f"--drain_grace={grace}", port=port)
        gateways.append(start())
        places[f"gateway {i}"] = [gateways[i], start, None]
    clients = [fleet.Client(g.address) for g in gateways]

    def all_back():
        for each in clients:
            each.wait_for_model(NUM_WORKERS)
    for place in places.values():
        place[2] = all_back
    all_back()
    # Half of the requests each; of the continuing ones, half begin at either gateway.
    stock = Stock(gateways[:2])
    shares = [stock, stock, Continuing(gateways[2:]), Continuing(gateways[:1:-1])]

    rng = random.Random(options.seed)
    serial, load = 0, Load(requests, references)
    begin = time.monotonic()
    while time.monotonic() - begin < 10 or serial < 100:  # as much as it can carry
        with load.changed:
            load.changed.wait_for(lambda: load.open < CAPACITY_STREAMS)
        load.send(rng.choice(shares), rng.randrange(NUM_KINDS), serial)
        serial += 1
    load.wait()
    seconds = time.monotonic() - begin
    capacity = serial / seconds
    print(f"capacity: {capacity:.1f} requests/s, {load.counts['tokens'] / seconds:.0f} tokens/s",
          flush=True)
    failures = load.failures

    load = Load(requests, references)
    restarted, done, logs = [], threading.Event(), []

    def run_restarts():
        try:
            restart(places, load, restarted, logs)
        except Exception as error:  # told below
            failures.append(repr(error))
        finally:
            done.set()
    restarter = threading.Thread(target=run_restarts)
    begin, arrival = time.monotonic(), 0.0
    restarter.start()
    while not done.is_set():
        arrival += rng.expovariate(LOAD * capacity)
        threading.Event().wait(max(0.0, begin + arrival - time.monotonic()))  # an arrival in time
        load.send(rng.choice(shares), rng.randrange(NUM_KINDS), serial)
        serial += 1
    load.wait()
    restarter.join()
    seconds = time.monotonic() - begin
    failures += load.failures
    print(f"restarted in {seconds:.0f} s: {', '.join(restarted)}")
    for what in ("stock", "continuing", "tokens", "migrations", "reconnects"):
        print(f"  {what:<12}{load.counts[what]:>8}")
    print(f"  {'failed':<12}{len(failures):>8}")
    for failure in failures[:10]:
        print("FAILED:", failure)
        request_id = failure.split(":")[0]
        for log in logs:
            print("".join(f"  {line}\n" for line in log if f'"{request_id}"' in line), end="")
    cut = min(load.counts["migrations"], load.counts["reconnects"])
    return 0 if not failures and cut > 0 and len(restarted) == len(places) else 1


if __name__ == "__main__":
    sys.exit(main())
