#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The load of the cluster's tests, in a pod or in a node's network namespace: the streams of
tests/chaos through the gateways' Service, each answer compared with an undisturbed one.

    load.py ADDRESS [--connections=4] [--streams=8] [--seed=1] [--model=NAME]
            [--authority=PEM --server_name=NAME --key=KEY]

Commands come as lines on stdin, each answered by one JSON line: `references` takes the undisturbed
answers anew, `start` begins and `stop` ends the streams and tells what happened in between,
`progress` what has so far. With an authority the Service is called over TLS, with the key as bearer.
"""
import argparse
import collections
import itertools
import json
import pathlib
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
for folder in ("e2e", "chaos"):
    sys.path.insert(0, str(HERE.parents[1] / "tests" / folder))
import fleet  # noqa: E402
from clients import Clients  # noqa: E402
from fleet import grpc, pb, pb_grpc  # noqa: E402
from traffic import make_request  # noqa: E402

NUM_KINDS = 16  # those that cover sampling and stopping
MORE_TOKENS = 600  # so that streams are longer than what happens to them


class Connection:
    """One channel to the Service: one HTTP/2 connection at a time, so to one gateway. That gateway
    may end at any time: a call that it rejects or cuts goes on over the same channel, each time a
    reconnect."""

    def __init__(self, address, authority="", server_name="", key=""):
        self.client = self.inference = self
        self.ended = False
        self.refusals = collections.Counter()
        self._epochs = itertools.count()
        # A gateway that is lost without a word is noticed by pings. Until Kubernetes knows of it, new
        # connections go there as well and do not come about: calls wait until one does.
        options = [
            ("grpc.use_local_subchannel_pool", 1), ("grpc.keepalive_time_ms", 10000),
            ("grpc.keepalive_timeout_ms", 2000), ("grpc.http2.ping_timeout_ms", 2000),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.min_reconnect_backoff_ms", 500),
            ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]
        if authority:
            credentials = grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(authority.encode()), grpc.access_token_call_credentials(key))
            channel = grpc.secure_channel(
                address, credentials, options + [("grpc.ssl_target_name_override", server_name)])
        else:
            channel = grpc.insecure_channel(address, options)
        self._stub = pb_grpc.InferenceServiceStub(channel)

    def Generate(self, request, timeout):
        begun = False
        try:
            for response in self._stub.Generate(request, timeout=timeout, wait_for_ready=True):
                begun = True
                yield response
        except grpc.RpcError as error:
            when = "midway" if begun else "at once"
            self.refusals[f"{when}: {error.code().name}: {error.details()}"] += 1
            raise

    def wake(self):
        """A channel without calls reads nothing: its connection may long have been closed."""
        while True:
            try:
                return self._stub.ListModels(pb.ListModelsRequest(), timeout=30, wait_for_ready=True)
            except grpc.RpcError as error:
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise

    @property
    def epoch(self):
        return next(self._epochs)


class Load(Clients):
    """Knows the answers of two sets of weights: an answer is one of them, or says `inexact`."""

    def __init__(self, *arguments):
        self.inexact, self.unknown, self.most_reconnects, self.longest_kept_gap = 0, [], 0, 0.0
        super().__init__(*arguments)

    def _next_gateway(self, stream):
        return stream.gateway

    def _compare(self, stream):
        answer = fleet.Answer(stream.responses)
        with self.changed:
            self.migrations += answer.summary.migrations
            self.most_reconnects = max(self.most_reconnects, stream.reconnects)
            if stream.reconnects == 0:
                self.longest_kept_gap = max(self.longest_kept_gap, stream.worst_gap[0])
            if answer.summary.inexact:
                self.inexact += 1
            elif answer.comparable() != self.references[stream.kind]:
                self.unknown.append((stream.kind, answer.comparable()))

    def forget(self):
        with self.changed:
            self.tokens = self.num_streams = self.reconnects = self.cuts = self.migrations = 0
            self.inexact = self.most_reconnects = 0
            self.longest_kept_gap = 0.0
            self.errors, self.gaps, self.unknown = [], [], []
            for connection in self.gateways:
                connection.refusals.clear()

    def report(self):
        with self.changed:
            gaps = sorted(gap for gap, _, _ in self.gaps)
            different = [kind for kind, got in self.unknown if got != self.references[kind]]
            return {"streams": self.num_streams, "tokens": self.tokens, "migrations": self.migrations,
                    "reconnects": self.reconnects, "most_reconnects": self.most_reconnects,
                    "inexact": self.inexact, "different": len(different),
                    "refusals": sum((c.refusals for c in self.gateways), collections.Counter()),
                    "errors": [text for _, text in self.errors],
                    "longest_gap_s": round(gaps[-1], 3) if gaps else 0.0,
                    # This counts streams that ended over the connection on which they began.
                    "longest_kept_gap_s": round(self.longest_kept_gap, 3)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--model", default="")
    parser.add_argument("--authority", default="")
    parser.add_argument("--server_name", default="")
    parser.add_argument("--key", default="")
    options = parser.parse_args()
    connections = [Connection(options.address, options.authority, options.server_name, options.key)
                   for _ in range(options.connections)]
    requests = []
    for i in range(NUM_KINDS):
        request = make_request(i, chat=True)
        request.model = options.model
        request.stopping.max_tokens += MORE_TOKENS
        requests.append(request)

    def undisturbed():
        answers = []
        for i, request in enumerate(requests):
            connection = connections[i % len(connections)]
            connection.wake()
            responses = list(connection.Generate(request, timeout=120))
            answers.append(fleet.Answer(responses).comparable())
        return answers

    references = undisturbed()
    load = Load(connections, requests, references, options.streams, options.seed)
    print(json.dumps({"ready": len(references)}), flush=True)
    for line in sys.stdin:
        command = line.strip()
        if command == "references":
            # Answers that were unknown before may be answers of the new weights.
            load.references[:] = undisturbed()
            print(json.dumps(load.report()), flush=True)
        elif command == "start":
            for connection in connections:
                connection.wake()
            load.forget()
            load.resume()
            load.wait_for_tokens(200, timeout=60)
            print(json.dumps(load.report()), flush=True)
        elif command == "stop":
            load.pause()
            print(json.dumps(load.report()), flush=True)
        elif command == "progress":
            load.wait_for_tokens(200, timeout=30)
            print(json.dumps(load.report()), flush=True)
    threading.Event().wait(0)


main()
