# SPDX-License-Identifier: Apache-2.0
"""Clients that stream without pause while a test breaks things: each answer is compared with that
of an undisturbed run. A client whose gateway ends goes on with a continuation at the next one; any
other error is one that a client must not see."""
import random
import threading
import time

import fleet
from fleet import grpc, pb

STREAM_TIMEOUT_S = 120
PAUSE_S = 0.02  # between two tries


class Stream:
    """One generation, over as many connections as it takes."""

    def __init__(self, kind, request, gateway):
        self.kind, self.request, self.gateway = kind, request, gateway
        self.responses = []
        self.reconnects = self.cuts = 0  # a cut is a reconnect with something received
        self.losses = 0  # workers lost since the last new token
        self.worst_gap = 0.0, 0.0  # seconds between two responses, and when they ended


class Clients:
    """`gateways`: what has `client` (a fleet.Client), `epoch` (counts its ends, from just before
    each) and `ended` (until it listens again). `references`: what comparable() of each request must be."""

    def __init__(self, gateways, requests, references, num_threads, seed):
        self.gateways, self.requests, self.references = gateways, requests, references
        self.changed = threading.Condition()
        self.active = set()
        self.tokens = self.num_streams = self.reconnects = self.cuts = self.migrations = 0
        self.differences, self.errors, self.gaps = [], [], []
        self._open, self._ended = False, False
        self._threads = [threading.Thread(target=self._work, args=(i, f"{seed}-{i}"), daemon=True)
                         for i in range(num_threads)]
        for thread in self._threads:
            thread.start()

    def resume(self):
        with self.changed:
            self._open = True
            self.changed.notify_all()

    def pause(self):
        """Returns when the last stream has ended."""
        with self.changed:
            self._open = False
            if not self.changed.wait_for(lambda: not self.active, timeout=2 * STREAM_TIMEOUT_S):
                raise TimeoutError(f"{len(self.active)} streams do not end")

    def end(self):
        self.pause()
        with self.changed:
            self._ended = True
            self.changed.notify_all()
        for thread in self._threads:
            thread.join()

    def count_loss(self):
        """A worker is about to be lost: perhaps that of any stream."""
        with self.changed:
            for stream in self.active:
                stream.losses += 1

    def most_losses(self):
        with self.changed:
            return max((stream.losses for stream in self.active), default=0)

    def is_midway(self, gateway):
        """Tells whether an answer that has begun is coming from this gateway."""
        with self.changed:
            return any(stream.responses and self.gateways[stream.gateway] is gateway
                       for stream in self.active)

    def wait_for_tokens(self, count, timeout):
        """Waits until `count` more tokens were delivered, or for `timeout` seconds."""
        with self.changed:
            goal = self.tokens + count
            self.changed.wait_for(lambda: self.tokens >= goal, timeout)

    def _work(self, number, seed):
        rng = random.Random(seed)
        serial = 0
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self._open or self._ended)
                if self._ended:
                    return
                kind = rng.randrange(len(self.requests))
                request = pb.GenerateRequest()
                request.CopyFrom(self.requests[kind])
                request.request_id = f"chaos-{seed}-{serial}"
                stream = Stream(kind, request, rng.randrange(len(self.gateways)))
                self.active.add(stream)
            serial += 1
            try:
                self._run(stream, slow=number % 4 == 0)
                self._compare(stream)
            except Exception as error:  # told at the end; the thread goes on
                text = (f"{request.request_id} of kind {kind}, from gateway {stream.gateway}, after "
                        f"{len(stream.responses)} responses: {describe(error)}")
                print(f"ERROR: {text}", flush=True)
                with self.changed:
                    self.errors.append((time.monotonic(), text))
            finally:
                with self.changed:
                    self.active.discard(stream)
                    self.num_streams += 1
                    self.reconnects += stream.reconnects
                    self.cuts += stream.cuts
                    self.gaps.append((*stream.worst_gap, request.request_id))
                    self.changed.notify_all()

    def _run(self, stream, slow):
        """Reads until the summary; `slow` reads more slowly than the answer is generated."""
        last = time.monotonic()
        deadline = last + STREAM_TIMEOUT_S
        while True:
            gateway = self.gateways[stream.gateway]
            epoch, ended = gateway.epoch, gateway.ended
            call = gateway.client.inference.Generate(
                stream.request, timeout=max(0.0, deadline - time.monotonic()))
            try:
                for response in call:
                    now = time.monotonic()
                    stream.worst_gap, last = max(stream.worst_gap, (now - last, now)), now
                    self._add(stream, response)
                    if slow:
                        threading.Event().wait(0.005)
                return
            except grpc.RpcError as error:
                if stream.responses and stream.responses[-1].HasField("summary"):
                    return
                with self.changed:
                    excused = ended or gateway.ended or gateway.epoch != epoch
                if error.code() != grpc.StatusCode.UNAVAILABLE or not excused:
                    raise
            stream.reconnects += 1
            stream.cuts += bool(stream.responses)
            stream.losses = 0  # the new call counts from nothing
            stream.gateway = self._next_gateway(stream)
            fleet.continue_after(stream.request, stream.responses)
            threading.Event().wait(PAUSE_S)

    def _next_gateway(self, stream):
        return (stream.gateway + 1) % len(self.gateways)

    def _add(self, stream, response):
        count = sum(len(delta.token_ids) for delta in response.deltas)
        with self.changed:
            stream.responses.append(response)
            if count > 0:
                stream.losses = 0
                self.tokens += count
                self.changed.notify_all()

    def _compare(self, stream):
        answer = fleet.Answer(stream.responses)
        got, expected = answer.comparable(), self.references[stream.kind]
        found = [f"{key}: {got[key]!r:.300} instead of {expected[key]!r:.300}"
                 for key in got if got[key] != expected[key]]
        if answer.summary.inexact:
            found.append("inexact")
        with self.changed:
            self.migrations += answer.summary.migrations
            if found:
                self.differences.append(
                    f"{stream.request.request_id} of kind {stream.kind}: " + "; ".join(found))


def describe(error):
    if isinstance(error, grpc.RpcError):
        return f"{error.code().name}: {error.details()} ({error.debug_error_string()})"
    return f"{type(error).__name__}: {error}"
