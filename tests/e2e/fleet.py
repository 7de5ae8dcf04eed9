# SPDX-License-Identifier: Apache-2.0
"""Real gateways and workers on loopback ports for tests, and a stock gRPC client for them.

Programs come from $CONTINUO_BIN. Ports are the system's to choose (":0"); a program is ready when
its log says where it listens. Everything started is stopped at exit.
"""
import atexit
import fcntl
import json
import os
import pathlib
import queue
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("CONTINUO_BIN", ROOT / "build/release/bin"))
SHARED = pathlib.Path(os.environ.get("CONTINUO_SHARED", ROOT.parent / "shared"))
DEMO_MODEL = ROOT / "deploy/demo-model"
START_TIMEOUT_S = 60


def _load_stubs():
    """Generates the Python stubs of proto/ once per process and imports them."""
    from grpc_tools import protoc
    import grpc_tools
    out = tempfile.mkdtemp(prefix="continuo-stubs-")
    atexit.register(shutil.rmtree, out, ignore_errors=True)
    proto = str(ROOT / "proto")
    well_known = str(pathlib.Path(grpc_tools.__file__).parent / "_proto")
    files = [str(p) for p in sorted((ROOT / "proto").rglob("*.proto"))]
    arguments = ["protoc", f"-I{proto}", f"-I{well_known}", f"--python_out={out}",
                 f"--grpc_python_out={out}", *files]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")
    sys.path.insert(0, out)


_load_stubs()
import grpc  # noqa: E402
from continuo.v1 import inference_pb2 as pb  # noqa: E402
from continuo.v1 import inference_pb2_grpc as pb_grpc  # noqa: E402
from continuo.v1 import worker_pb2 as worker_pb  # noqa: E402
from continuo.v1 import worker_pb2_grpc as worker_grpc  # noqa: E402

_running = []


@atexit.register
def _stop_all():
    for program in list(_running):
        program.kill()


_port_locks = []


def free_port():
    """A port for programs that must come back at one address. It is below those that the system
    gives to ":0" and to outgoing connections, so nobody gets it meanwhile, and it is this process's
    until it ends: other tests that ask here are given others."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
        first_ephemeral = int(f.read().split()[0])
    lowest = max(1024, first_ephemeral - 16384)
    count = first_ephemeral - lowest
    for i in range(count):
        port = lowest + (os.getpid() * 97 + i) % count
        lock = open(pathlib.Path(tempfile.gettempdir()) / f"continuo-port-{port}.lock", "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        _port_locks.append(lock)
        return port
    raise RuntimeError(f"no port from {lowest} to {first_ephemeral - 1} is free")


class Program:
    """One process; its stderr is kept as lines and, where they are JSON, as log records.
    `prefix` is a command that becomes the program, such as nsenter."""

    def __init__(self, name, *arguments, env=None, prefix=()):
        self.arguments = [*prefix, str(BIN / name), *[str(a) for a in arguments]]
        self.lines, self._records = [], queue.Queue()
        self.process = subprocess.Popen(self.arguments, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **(env or {})})
        _running.append(self)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.address = self.metrics_address = None

    def _read(self):
        with self.process.stderr as lines:
            for line in lines:
                self.lines.append(line.rstrip("\n"))
                try:
                    self._records.put(json.loads(line))
                except ValueError:
                    pass
        self._records.put(None)

    def wait_for_log(self, message, timeout=START_TIMEOUT_S):
        """The first log record from now on with this message; fails if the program ends first."""
        deadline = time.monotonic() + timeout
        while True:
            record = self._records.get(timeout=max(0.0, deadline - time.monotonic()))
            if record is None:
                self._records.put(None)
                raise RuntimeError(f"{self.arguments} ended:\n" + "\n".join(self.lines[-20:]))
            if record.get("message") == message:
                return record

    def wait_until_listening(self):
        record = self.wait_for_log("listening")
        self.address = record["address"].replace("0.0.0.0", "127.0.0.1")
        self.metrics_address = record.get("metrics_address", "")
        self.http_address = record.get("http_address", "")
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        if self in _running:
            _running.remove(self)

    def terminate(self, timeout=30):
        """SIGTERM; returns the exit status."""
        self.signal(signal.SIGTERM)
        status = self.process.wait(timeout)
        self._reader.join(timeout)
        if self in _running:
            _running.remove(self)
        return status


def start_worker(model=DEMO_MODEL, *flags, port=0, wait=True, **keywords):
    worker = Program("continuo-worker", f"--model={model}", f"--listen=127.0.0.1:{port}",
                     "--metrics_listen=127.0.0.1:0", *flags, **keywords)
    return worker.wait_until_listening() if wait else worker


def start_gateway(workers, *flags, port=0, **keywords):
    if not isinstance(workers, str):
        workers = ",".join(w if isinstance(w, str) else w.address for w in workers)
    return Program("continuo-gateway", f"--workers={workers}", f"--listen=127.0.0.1:{port}",
                   "--http_listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", *flags,
                   **keywords).wait_until_listening()


def wait_until(condition, what, timeout=START_TIMEOUT_S):
    """Polls another process; nothing to be notified by."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        threading.Event().wait(0.02)


class Client:
    """A stock gRPC client of one address."""

    def __init__(self, address):
        self.channel = grpc.insecure_channel(
            address, options=[("grpc.use_local_subchannel_pool", 1),
                              ("grpc.initial_reconnect_backoff_ms", 50),
                              ("grpc.max_reconnect_backoff_ms", 200)])
        self.inference = pb_grpc.InferenceServiceStub(self.channel)
        self.worker = worker_grpc.WorkerServiceStub(self.channel)

    def wait_for_model(self, num_workers=1, timeout=START_TIMEOUT_S):
        """Waits until ListModels has a model with that many workers."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                models = self.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True,
                                                   timeout=timeout).models
            except grpc.RpcError as error:
                # A channel without calls reads nothing, so the server that it was connected to may
                # be gone.
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise
                models = []
            if models and models[0].num_workers >= num_workers:
                return models[0]
            if time.monotonic() > deadline:
                raise TimeoutError(f"{num_workers} workers")
            threading.Event().wait(0.02)  # polls another process; nothing to be notified by

    def generate(self, request, timeout=120, metadata=(), on_response=None):
        """All responses; `on_response` sees each as it arrives."""
        responses = []
        for response in self.inference.Generate(request, timeout=timeout, metadata=metadata,
                                                wait_for_ready=True):
            responses.append(response)
            if on_response:
                on_response(response)
        return Answer(responses)


class Answer:
    """The content of a stream, per sequence, independent of its division into responses."""

    def __init__(self, responses):
        self.responses = responses
        self.accepted = [r.accepted for r in responses if r.HasField("accepted")]
        self.summary = next((r.summary for r in responses if r.HasField("summary")), None)
        self.prompt_logprobs = [p for r in responses for p in r.prompt_logprobs]
        self.text, self.ids, self.logprobs, self.finish, self.matched = {}, {}, {}, {}, {}
        for response in responses:
            for delta in response.deltas:
                i = delta.index
                self.text[i] = self.text.get(i, "") + delta.text
                self.ids.setdefault(i, []).extend(delta.token_ids)
                self.logprobs.setdefault(i, []).extend(delta.logprobs)
                if delta.finish_reason:
                    if i in self.finish:
                        raise AssertionError(f"sequence {i} finished twice")
                    self.finish[i] = delta.finish_reason
                    which = delta.WhichOneof("matched_stop")
                    self.matched[i] = (which, getattr(delta, which)) if which else None

    def comparable(self):
        """Everything that must be equal to an undisturbed run of the same request."""
        usage = pb.Usage()
        usage.CopyFrom(self.summary.usage)
        usage.ClearField("cached_prompt_tokens")
        as_bytes = lambda messages: [m.SerializeToString(deterministic=True) for m in messages]
        return {
            "text": self.text, "ids": self.ids, "finish": self.finish, "matched": self.matched,
            "logprobs": {i: as_bytes(l) for i, l in self.logprobs.items()},
            "prompt_logprobs": as_bytes(self.prompt_logprobs),
            "usage": usage.SerializeToString(deterministic=True),
            "numbers": [r.sequence for r in self.responses] == list(range(len(self.responses))),
            "seed": self.accepted[-1].seed,
        }


def continue_after(request, responses):
    """Makes the request one that goes on after what was received, which may be nothing."""
    request.continuation.Clear()
    request.continuation.SetInParent()  # even an empty one: the request may be live already
    for response in responses:
        request.continuation.received.MergeFrom(response)


def scrape(metrics_address):
    """The /metrics page as {series: value}."""
    import urllib.request
    with urllib.request.urlopen(f"http://{metrics_address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1]) for l in lines if l and l[0] != "#"}
