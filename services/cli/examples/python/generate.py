#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Streams an answer with nothing but stock gRPC, and goes on where it was after a lost connection.

    python3 -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python generate.py --server=localhost:50050 "Once upon a time"

Exit code: 0, 1 after an error, 2 for bad usage, 130 after Ctrl-C.
"""
import argparse
import importlib
import itertools
import pathlib
import sys
import tempfile
import time

import grpc
from grpc_tools import protoc

PROTO = pathlib.Path(__file__).resolve().parents[4] / "proto"


def load_stubs(proto):
    """Compiles the .proto files into a temporary folder and imports what comes out."""
    with tempfile.TemporaryDirectory(prefix="continuo-stubs-") as out:
        well_known = pathlib.Path(protoc.__file__).parent / "_proto"
        files = sorted(str(path) for path in pathlib.Path(proto).rglob("*.proto"))
        arguments = [f"-I{proto}", f"-I{well_known}", f"--python_out={out}",
                     f"--grpc_python_out={out}", *files]
        if not files or protoc.main(["protoc", *arguments]) != 0:
            raise SystemExit(f"generate.py: cannot compile the protos in {proto}")
        sys.path.insert(0, out)
        names = ("continuo.v1.inference_pb2", "continuo.v1.inference_pb2_grpc",
                 "google.rpc.status_pb2", "google.rpc.error_details_pb2")
        return [importlib.import_module(name) for name in names]


def wait_until_connected(channel, seconds):
    """At most so long. Between calls a channel connects only while somebody waits for it."""
    ready = grpc.channel_ready_future(channel)
    try:
        ready.result(timeout=seconds)
    except grpc.FutureTimeoutError:
        ready.cancel()


def generate(channels, make_stub, request, deadline, reconnect_for=60.0,
             on_lost=lambda error: None, retry_delay=lambda error: 0.0):
    """Yields every response exactly once and in order, over as many connections as it takes, each
    to the next of the servers. It adds what was received to the request's continuation: a server
    that gets that goes on exactly after it.

    `deadline` is a time.monotonic(), `retry_delay` how long a server asks to wait, in seconds. Raises
    grpc.RpcError when that has passed, when tries brought nothing new for `reconnect_for` seconds, or
    after an error that another try cannot mend.
    """
    stubs = [make_stub(channel) for channel in channels]
    lost_since, pause = None, 0.1
    for attempt in itertools.count():
        # gRPC sends the deadline along, so the server does not work beyond it either.
        call = stubs[attempt % len(stubs)].Generate(
            request, timeout=max(0.0, deadline - time.monotonic()))
        try:
            for response in call:
                request.continuation.received.MergeFrom(response)
                lost_since, pause = None, 0.1
                yield response
            return
        except grpc.RpcError as error:
            if request.continuation.received.HasField("summary"):
                return  # The answer is complete, whatever became of the connection.
            go_on = request.HasField("continuation") or attempt + 1 < len(stubs)
            lost = error.code() == grpc.StatusCode.UNAVAILABLE and go_on
            # A full server accepts a continuation a little later.
            full = (error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
                    and request.HasField("continuation"))
            # The time counts from the loss, which may be noticed late.
            lost_since = lost_since or time.monotonic()
            if not (lost or full) or time.monotonic() - lost_since > reconnect_for:
                raise
            on_lost(error)
            time.sleep(max(pause, retry_delay(error)))
            wait_until_connected(channels[(attempt + 1) % len(channels)], pause)
            pause = min(2 * pause, 3.0)
        finally:
            call.cancel()  # If the caller stops early, the server stops, too.


def details_of(error, status_pb, details_pb):
    """The ErrorInfo and the RetryInfo that came with an error; empty ones where none did."""
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    info, retry = details_pb.ErrorInfo(), details_pb.RetryInfo()
    for any_message in status_pb.Status.FromString(details).details if details else ():
        any_message.Unpack(info) or any_message.Unpack(retry)
    return info, retry


def describe(error, status_pb, details_pb):
    """One line: code, reason and message; and when to try again, where the server says so."""
    info, retry = details_of(error, status_pb, details_pb)
    reason = f" ({info.reason})" if info.reason else ""
    delay = retry.retry_delay.ToMilliseconds()
    hint = f"; try again in {delay} ms" if retry.HasField("retry_delay") else ""
    return f"{error.code().name}{reason}: {error.details()}{hint}"


def main():
    parser = argparse.ArgumentParser(description="Streams the continuation of a text.")
    parser.add_argument("prompt")
    parser.add_argument("--server", default="localhost:50050",
                        help="host:port, or several with commas")
    parser.add_argument("--model", default="")
    parser.add_argument("--max_tokens", type=int)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--ignore_eos", action="store_true")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds")
    parser.add_argument("--proto", default=PROTO, help="folder of the .proto files")
    flags = parser.parse_args()
    pb, pb_grpc, status_pb, details_pb = load_stubs(flags.proto)

    request = pb.GenerateRequest(model=flags.model, text=flags.prompt)
    # Unset fields take the model's defaults.
    if flags.max_tokens is not None:
        request.stopping.max_tokens = flags.max_tokens
    if flags.temperature is not None:
        request.sampling.temperature = flags.temperature
    if flags.seed is not None:
        request.sampling.seed = flags.seed
    request.stopping.ignore_eos = flags.ignore_eos

    def on_lost(error):
        num_tokens = sum(len(d.token_ids) for d in request.continuation.received.deltas)
        print(f"[lost after {num_tokens} tokens, {error.code().name}; going on]", file=sys.stderr)

    def retry_delay(error):
        retry = details_of(error, status_pb, details_pb)[1]
        return retry.retry_delay.ToMilliseconds() / 1000

    # Pings find a connection that broke without a FIN or RST. By default they stop after two while a
    # call only receives, and their timeout is a minute.
    options = [("grpc.keepalive_time_ms", 10_000), ("grpc.keepalive_timeout_ms", 5_000),
               ("grpc.http2.ping_timeout_ms", 5_000), ("grpc.http2.max_pings_without_data", 0),
               ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2_000)]
    deadline = time.monotonic() + flags.timeout
    channels = [grpc.insecure_channel(address, options=options)
                for address in flags.server.split(",")]
    try:
        for response in generate(channels, pb_grpc.InferenceServiceStub, request, deadline,
                                 on_lost=on_lost, retry_delay=retry_delay):
            for delta in response.deltas:
                sys.stdout.write(delta.text)
            sys.stdout.flush()
        print()
    except grpc.RpcError as error:
        print(f"generate.py: {describe(error, status_pb, details_pb)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # The call has been cancelled by now.
        print()
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
