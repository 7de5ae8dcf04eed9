# SPDX-License-Identifier: Apache-2.0
"""Real workers behind servers that pass every call on, and cut streams after a number of tokens as the
death of a worker does."""
import concurrent.futures
import pathlib
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import grpc  # noqa: E402
from fleet import pb  # noqa: E402

GENERATE = "/continuo.v1.InferenceService/Generate"
OWN_METADATA = ("user-agent", "grpc-", ":", "te", "content-type")
MAX_CALLS = 128


class Cutter:
    """The plan of cuts, and where each was. Shared by the doors of a fleet; thread-safe."""

    def __init__(self):
        self._lock = threading.Lock()
        self._first = {}  # by request id: ids after which the first call is cut
        self._every = None
        self._cuts = {}

    def cut_first(self, request_id, after):
        """The first call of this request is cut after so many of its ids, the others are not."""
        with self._lock:
            self._first[request_id] = after

    def cut_every(self, after):
        """Every call that brings so many ids is cut behind them. None: no longer."""
        with self._lock:
            self._every = after

    def take_cuts(self, request_id):
        """After how many ids, in all, the request was cut since the last time."""
        with self._lock:
            return self._cuts.pop(request_id, [])

    def limit(self, request):
        with self._lock:
            after = None if request.HasField("continuation") else self._first.pop(request.request_id, None)
            return self._every if after is None else after

    def note(self, request, num_ids):
        received = sum(len(d.token_ids) for d in request.continuation.received.deltas)
        with self._lock:
            self._cuts.setdefault(request.request_id, []).append(received + num_ids)


class Door(grpc.GenericRpcHandler):
    """A server in front of one worker."""

    def __init__(self, worker, cutter):
        self._cutter = cutter
        self._channel = grpc.insecure_channel(worker.address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(MAX_CALLS), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def stop(self):
        self._server.stop(grace=None).wait()
        self._channel.close()

    def service(self, details):
        return grpc.stream_stream_rpc_method_handler(
            lambda requests, context: self._pass_on(details, requests, context))

    def _pass_on(self, details, requests, context):
        body = next(requests)
        request, limit, num_ids = None, None, 0
        if details.method == GENERATE:
            request = pb.GenerateRequest.FromString(body)
            limit = self._cutter.limit(request)
        metadata = [(k, v) for k, v in details.invocation_metadata if not k.startswith(OWN_METADATA)]
        left = context.time_remaining()
        # Without a deadline it is some 300 billion years.
        timeout = left if left is not None and left < 1e9 else None
        call = self._channel.stream_stream(details.method)(iter([body]), metadata=metadata, timeout=timeout)
        if not context.add_callback(call.cancel):
            call.cancel()
        try:
            context.send_initial_metadata(call.initial_metadata())
            for message in call:
                if limit is not None:
                    response = pb.GenerateResponse.FromString(message)
                    num_ids += sum(len(delta.token_ids) for delta in response.deltas)
                    if limit == 0 and num_ids > 0:
                        self._cut(request, 0, call, context)
                yield message
                if limit and num_ids >= limit and not response.HasField("summary"):
                    self._cut(request, num_ids, call, context)
        except grpc.RpcError as error:
            context.set_trailing_metadata(call.trailing_metadata())
            context.abort(error.code(), error.details())

    def _cut(self, request, num_ids, call, context):
        self._cutter.note(request, num_ids)
        call.cancel()
        context.abort(grpc.StatusCode.UNAVAILABLE, "")
