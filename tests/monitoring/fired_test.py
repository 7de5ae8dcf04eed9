# SPDX-License-Identifier: Apache-2.0
"""Every alert fires for real: what each is about happens to real programs that a real Prometheus scrapes.
The rules' windows and waits are cut, and the objectives are what no answer meets. With it, the panels
that show 0 in a fleet that is well show more."""
import contextlib
import ctypes
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures

import queries
from live_test import ZERO_WHEN_WELL
from prometheus import Prometheus, make_model

import fleet  # found by queries
from fleet import grpc, pb

# This is a defect of the worker, which no test can cause.
NOT_FIRED = {"ContinuoBlocksUnaccounted"}
KEY = "key-of-alice-0123"
NO_WORKER_WAIT_S = 12
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH = 0x4206, 0x4207, 17


def cut(rules):
    """A minute of the rules' windows, seconds of those of the load reports; objectives of 1 µs."""
    rules = re.sub(r"\[(5m|10m|15m|30m|1h|6h)\]", "[1m]", rules).replace("[10m:15s]", "[15s:1s]")
    return re.sub(r"(\(continuo_gateway_build_info\)) \* [0-9.]+", r"\1 * 1e-6", rules)


@contextlib.contextmanager
def stopped_engine(worker):
    """The thread that makes steps stands still; all others go on."""
    folder = pathlib.Path(f"/proc/{worker.process.pid}/task")
    thread = next(int(t.name) for t in folder.iterdir() if (t / "comm").read_text() == "engine\n")
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]

    def call(request):
        if ptrace(request, thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
    call(PTRACE_SEIZE)
    call(PTRACE_INTERRUPT)
    os.waitpid(thread, 0x40000000)  # __WALL
    try:
        yield
    finally:
        call(PTRACE_DETACH)


class FiredTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="continuo-fired-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = make_model(self.folder)
        (self.folder / "keys").write_text(f"alice {KEY}\n")
        # A process that opens it waits for ever.
        (self.folder / "loads").mkdir()
        for file in self.model.iterdir():
            (self.folder / "loads" / file.name).symlink_to(file)
        (self.folder / "loads/config.json").unlink()
        os.mkfifo(self.folder / "loads/config.json")
        # It serves neither spans nor log records.
        self.collector = grpc.server(futures.ThreadPoolExecutor(2))
        self.addCleanup(self.collector.stop, None)
        self.otlp = f"--otlp_endpoint=127.0.0.1:{self.collector.add_insecure_port('127.0.0.1:0')}"
        self.collector.start()

        self.ports = [(fleet.free_port(), fleet.free_port()) for _ in range(3)]
        self.workers = [self.worker(0, "--isa=scalar")]
        self.gateway = fleet.start_gateway(
            ",".join(f"127.0.0.1:{port}" for port, _ in self.ports), self.otlp, "--usage_otlp",
            f"--api_keys_file={self.folder}/keys", f"--no_worker_wait={NO_WORKER_WAIT_S}s",
            "--max_queued_tokens=2500", "--models=tiny", "--cold_start_wait=0")
        self.prometheus = Prometheus(
            {"gateway-0": self.gateway.metrics_address} |
            {f"worker-{i}": f"127.0.0.1:{metrics}" for i, (_, metrics) in enumerate(self.ports)},
            change=cut, interval="1s")
        self.begin = time.time()
        self.prometheus.wait_for('max(continuo_gateway_workers{state="serving"})', lambda v: v == 1,
                                 "a worker")

    def tearDown(self):
        self.prometheus.stop()
        for program in [self.gateway, *self.workers]:
            program.kill()

    def worker(self, i, *flags, model=None, listening=True):
        port, metrics = self.ports[i]
        worker = fleet.Program(
            "continuo-worker", f"--model={model or self.model}", "--model_name=tiny",
            f"--listen=127.0.0.1:{port}", f"--metrics_listen=127.0.0.1:{metrics}", "--threads=1",
            "--kv_blocks=128", "--max_running=32", self.otlp, *flags)
        return worker.wait_until_listening() if listening else worker

    @contextlib.contextmanager
    def load(self, server, concurrency, output_tokens=100):
        """Requests without end; some of them may fail."""
        bench = subprocess.Popen(
            [fleet.BIN / "continuo", "bench", f"--server={server.address}",
             f"--concurrency={concurrency}", "--requests=1000000", "--prompt_tokens=uniform:64:160",
             f"--output_tokens={output_tokens}"],
            env={**os.environ, "CONTINUO_API_KEY": KEY}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            bench.kill()
            bench.wait()

    def fires(self, *alerts):
        for alert in alerts:
            print(alert, file=sys.stderr, flush=True)
            self.prometheus.wait_for(
                f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})', lambda v: v, alert)

    def test_every_alert_fires(self):
        self.prometheus.wait_for("count(ALERTS)", lambda v: v is None, "no alert in a fleet that is idle")
        self.strangers()
        self.hung_worker()
        self.workers.append(self.worker(1))
        self.fires("ContinuoFingerprintsDiffer")
        with self.load(self.gateway, concurrency=8, output_tokens=400):
            self.fires("ContinuoFirstTokenSlow", "ContinuoInterTokenSlow", "ContinuoSpansDropped",
                       "ContinuoUsageRecordsDropped")
            self.late_reports()
            self.lost_workers()
        self.restarts()
        # Answers grow beyond the KV cache, and more prompts come than may wait.
        with self.load(self.workers[0], concurrency=6, output_tokens="uniform:400:1200"):
            self.fires("ContinuoPreempting")
        with self.load(self.gateway, concurrency=32):
            self.fires("ContinuoOverloaded")
        self.worker_that_loads_for_ever()
        self.few_files()
        self.gateway.kill()
        self.fires("ContinuoNoGateway")
        fired = {s["metric"]["alertname"] for s in self.prometheus.get(
            "query", query='max by (alertname) (max_over_time(ALERTS{alertstate="firing"}[1h]))'
        )["result"]}
        self.assertEqual(fired, {r["alert"] for r in queries.rules() if "alert" in r} - NOT_FIRED)
        most = {}
        for panel, _, values in self.prometheus.panels(self.begin, time.time()):
            most[panel] = max([most.get(panel, 0), *values])
        self.assertEqual({p for p in ZERO_WHEN_WELL if most[p] <= 0}, set(), "panels that show 0")

    def strangers(self):
        stub = fleet.Client(self.gateway.address).inference
        for _ in range(200):
            with self.assertRaises(grpc.RpcError):
                stub.ListModels(pb.ListModelsRequest())
        self.fires("ContinuoStrangers")

    def hung_worker(self):
        """Hangs a worker near the end of an answer that fills the KV cache, so that later requests
        wait long."""
        client = fleet.Client(self.workers[0].address)

        def ask(tokens, **keywords):
            request = pb.GenerateRequest()
            request.token_ids.ids.extend(range(1, 65))
            request.stopping.max_tokens, request.stopping.ignore_eos = tokens, True
            threads.append(threading.Thread(target=client.generate, args=(request,), kwargs=keywords))
            threads[-1].start()
        threads, num_tokens, nearly = [], 0, threading.Event()

        def count(response):
            nonlocal num_tokens
            num_tokens += sum(len(delta.token_ids) for delta in response.deltas)
            if num_tokens >= 1800:
                nearly.set()
        ask(1980, on_response=count)
        self.assertTrue(nearly.wait(60))
        with stopped_engine(self.workers[0]):
            for _ in range(8):
                ask(4)
            self.fires("ContinuoWorkerHung", "ContinuoKvCacheFull")
            time.sleep(8)  # a wait of requests, which is what the alert is about
        for thread in threads:
            thread.join()
        self.fires("ContinuoQueueSlow")

    def late_reports(self):
        """Delays reports again and again, just long enough for the worker to be lost and its
        streams to leave."""
        done = threading.Event()

        def pause():
            while not done.is_set():
                self.workers[1].signal(signal.SIGSTOP)
                time.sleep(2.1)  # the silence and the moment after it, which the alert is about
                self.workers[1].signal(signal.SIGCONT)
                time.sleep(0.3)
        thread = threading.Thread(target=pause)
        thread.start()
        try:
            self.fires("ContinuoLoadReportsOld", "ContinuoStreamsMigrate")
        finally:
            done.set()
            thread.join()

    def lost_workers(self):
        self.workers[1].kill()
        self.fires("ContinuoWorkerLost", "ContinuoTargetDown")
        # The streams wait, and go on when one is back.
        self.workers[0].kill()
        self.fires("ContinuoModelNotServed")
        time.sleep(6)  # a pause of streams, which is what the alert is about
        self.workers[0] = self.worker(0)
        self.fires("ContinuoMigrationsSlow")
        # This time they wait for too long.
        self.workers[0].kill()
        self.fires("ContinuoNoWorker", "ContinuoErrorBudgetBurnsFast", "ContinuoErrorBudgetBurnsSlowly",
                   "ContinuoColdStartStuck")

    def restarts(self):
        for i in range(4):
            self.workers[0] = self.worker(0)
            self.prometheus.wait_for('changes(process_start_time_seconds{pod="worker-0"}[1m])',
                                     lambda v, i=i: v is not None and v >= i, "a restart")
            if i < 3:
                self.workers[0].kill()
        self.fires("ContinuoRestarts")

    def worker_that_loads_for_ever(self):
        self.workers.append(self.worker(2, model=self.folder / "loads", listening=False))
        self.fires("ContinuoWorkerLoadsLong")

    def few_files(self):
        pid = self.gateway.process.pid
        num_open = len(os.listdir(f"/proc/{pid}/fd"))
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (num_open * 10 // 9, before[1]))
        self.fires("ContinuoFilesRunOut")
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


if __name__ == "__main__":
    unittest.main()
