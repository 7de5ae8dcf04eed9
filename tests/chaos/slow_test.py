#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker that is slow beyond reason gets little while it is, and its share again afterwards.

A gateway and three workers. The engine's thread of one is stopped for a second after each of its
steps (ptrace): it goes on reporting, and is neither lost nor hung, as if it got a hundredth of a core.
Clients stream without pause through the gateway. Once it is known to be slow, other streams, opened
at the workers themselves, give the two well ones queues: by load alone the slow one would be taken
before them. What is compared is how many of the same requests each worker was given, whatever the
machine's speed.
"""
import argparse
import json
import pathlib
import random
import sys
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from stopped_thread import StoppedThread  # noqa: E402
from traffic import make_request  # noqa: E402

NUM_CLIENTS, NUM_KINDS, MAX_TOKENS = 5, 16, 6
WORKER_FLAGS = ["--threads=1", "--kv_blocks=512", "--max_running=8", "--isa=scalar",
                "--speculation=off"]
NAMES = ["slow", "well-1", "well-2"]
# Streams at each healthy worker, two more than it runs at once.
NUM_QUEUEING = 10
# The pause is above SlowWorkersOptions::slow_step, and below the 2 s after which an engine is hung.
STOPPED_S = 1
WAIT_S = 180
# Streams of a period: while a worker is slow, and before and after it. They are enough to tell
# shares from chance.
NUM_REQUESTS, NUM_MORE = 120, 480


class Throttle:
    """Stops a worker's engine after each of its steps for STOPPED_S."""

    def __init__(self, worker):
        self._worker, self._ended = worker, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.num_stops = 0
        self._first = self._num_steps = self._count()
        self._thread.start()

    def _count(self, timeout=10):
        page = urllib.request.urlopen(f"http://{self._worker.metrics_address}/metrics",
                                      timeout=timeout).read().decode()
        return sum(float(line.split()[-1]) for line in page.splitlines()
                   if line.startswith("continuo_step_seconds_count"))

    def _stop(self):
        """Stops the thread, but not while the engine holds a lock: others waiting for it would be
        another fault."""
        while True:
            stopped = StoppedThread(self._worker.process.pid, "engine")
            try:
                self._num_steps = self._count(timeout=0.2)
                return stopped
            except OSError:
                stopped.resume()
                self._count()

    def _run(self):
        while not self._ended.is_set():
            stopped = self._stop()
            self.num_stops += 1
            self._ended.wait(STOPPED_S)  # the fault itself
            stopped.resume()
            while not self._ended.is_set() and self._count() == self._num_steps:
                pass  # polls another process; nothing to be notified by

    def release(self):
        """Returns how many steps it made for each stop."""
        self._ended.set()
        self._thread.join()
        return (self._num_steps - self._first) / max(1, self.num_stops)


class Ballast:
    """Streams of so many tokens at the worker itself, one after the other."""

    def __init__(self, worker, max_tokens, seed=0):
        self._client, self._ended = fleet.Client(worker.address), False
        self._max_tokens, self._seed = max_tokens, seed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._ended:
            request = pb.GenerateRequest(text="Mira lives in Oslo.")
            request.stopping.max_tokens = self._max_tokens
            request.stopping.ignore_eos = True
            request.sampling.seed = self._seed
            request.output.collect = True  # this process has others to listen to
            self._call = self._client.inference.Generate(request)
            try:
                for _ in self._call:
                    pass
            except fleet.grpc.RpcError:
                pass  # cancelled at the end

    def end(self):
        self._ended = True
        self._call.cancel()
        self._thread.join()


class Clients:
    """Streams without pause; counts where each was accepted, in a period, and compares it."""

    def __init__(self, gateway, requests, references):
        self.client = fleet.Client(gateway.address)
        self.requests, self.references = requests, references
        self.changed = threading.Condition()
        self.given = dict.fromkeys(NAMES, 0)
        self.failures, self.num_streams, self.num_migrations = [], 0, 0
        self._period, self._ended = 0, False
        self._threads = [threading.Thread(target=self._work, args=(i,), daemon=True)
                         for i in range(NUM_CLIENTS)]
        for thread in self._threads:
            thread.start()

    def _work(self, number):
        rng = random.Random(number)
        while not self._ended:
            kind = rng.randrange(len(self.requests))
            failure = self._run(kind)
            with self.changed:
                self.num_streams += 1
                if failure:
                    self.failures.append(f"kind {kind}: {failure}")

    def _run(self, kind):
        """The fault of the answer, or None."""
        with self.changed:
            period = self._period

        def count(response):
            if response.HasField("accepted"):
                with self.changed:
                    if period == self._period:
                        self.given[response.accepted.worker] += 1
                        self.changed.notify_all()
        try:
            answer = self.client.generate(self.requests[kind], on_response=count)
        except fleet.grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
        if answer.comparable() != self.references[kind] or answer.summary.inexact:
            return "differs"
        with self.changed:
            self.num_migrations += answer.summary.migrations
        return None

    def next_period(self, num_requests):
        """The number of requests that each worker gets of this many sent from now on."""
        with self.changed:
            self._period += 1
            self.given = dict.fromkeys(NAMES, 0)
            if not self.changed.wait_for(lambda: sum(self.given.values()) >= num_requests, WAIT_S):
                raise TimeoutError(f"in {WAIT_S} s the workers were given {self.given}")
            return dict(self.given)

    def end(self):
        self._ended = True
        for thread in self._threads:
            thread.join()


def wait_for_slow(gateway, slow, is_slow):
    """Waits until the gateway's fleet page says so."""
    give_up = time.monotonic() + WAIT_S
    while time.monotonic() < give_up:
        with urllib.request.urlopen(f"http://{gateway.http_address}/fleet", timeout=10) as page:
            workers = json.load(page)["workers"]
        if {w["worker"]: w["slow"] for w in workers} == {
                name: is_slow and name == slow for name in NAMES}:
            return
        time.sleep(0.05)  # polls another process; nothing to be notified by
    raise TimeoutError(f"in {WAIT_S} s the fleet has not become so: {workers}")


def make_requests(chat):
    requests = [make_request(i, chat) for i in range(NUM_KINDS)]
    for request in requests:
        request.stopping.max_tokens = MAX_TOKENS
        request.stopping.min_tokens = 0
    return requests


def check(condition, text):
    print(("" if condition else "FAILED: ") + text, flush=True)
    return condition


def mean_of_others(given):
    return sum(given[name] for name in NAMES[1:]) / (len(NAMES) - 1)


def main():
    parser = argparse.ArgumentParser()
    # These make the test fail: a policy that ignores slowness, or a worker that nothing slows.
    parser.add_argument("--routing_policy", default="least_loaded")
    parser.add_argument("--no_throttle", action="store_true")
    options = parser.parse_args()
    workers = [fleet.start_worker(fleet.DEMO_MODEL, f"--worker_name={name}", *WORKER_FLAGS)
               for name in NAMES]
    client = fleet.Client(workers[0].address)
    requests = make_requests(pb.CAPABILITY_CHAT in client.wait_for_model().capabilities)
    references = [client.generate(request).comparable() for request in requests]
    gateway = fleet.start_gateway(workers, f"--routing_policy={options.routing_policy}")
    fleet.Client(gateway.address).wait_for_model(len(workers))
    # The worker needs steps that can be measured.
    always = Ballast(workers[0], 900)
    clients = Clients(gateway, requests, references)

    before = clients.next_period(NUM_MORE)
    print(f"before: {before}", flush=True)
    ok = True
    if not options.no_throttle:
        throttle = Throttle(workers[0])
        wait_for_slow(gateway, NAMES[0], True)
    queues = [Ballast(worker, 100, i) for worker in workers[1:] for i in range(NUM_QUEUEING)]
    given = clients.next_period(NUM_REQUESTS)
    for stream in queues:
        stream.end()
    ok &= check(given[NAMES[0]] < min(given[name] for name in NAMES[1:]) and
                given[NAMES[0]] < 0.5 * mean_of_others(given), f"while it is slow: {given}")
    num_stops = 0
    if not options.no_throttle:
        steps, num_stops = throttle.release(), throttle.num_stops
        print(f"{num_stops} stops, {steps:.2f} steps for each", flush=True)
        wait_for_slow(gateway, NAMES[0], False)
    given = clients.next_period(NUM_MORE)
    ok &= check(given[NAMES[0]] > 0.6 * before[NAMES[0]], f"well again: {given}")
    clients.end()
    always.end()
    times = sum('"worker slow"' in line for line in gateway.lines)
    # The verdict comes once, and more often only where the machine is so busy that the healthy
    # workers' steps are long, too. Without hysteresis it would come about once for each stop.
    ok &= check(1 <= times <= 1 + num_stops // 10, f"the gateway called a worker slow {times} times")
    ok &= check(not clients.failures, f"{clients.num_streams} streams, {clients.num_migrations} migrations, "
                f"{len(clients.failures)} failed or differ: {clients.failures[:5]}")
    ok &= check([p.terminate() for p in (gateway, *workers)] == [0] * 4, "all exit with 0")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
