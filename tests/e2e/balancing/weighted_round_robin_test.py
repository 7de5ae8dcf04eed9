#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gRPC's own weighted round robin, unmodified, over real workers whose caches are filled to different
shares: by the reports of ORCA, out of band or in the trailers of calls, each gets calls as 1 / utilization, and
the rest goes on when one dies. A client of gRPC keeps those trailers to itself, so that this is how they show."""
import json
import pathlib
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import filled_cache  # noqa: E402
from filled_cache import CONTEXT  # noqa: E402
from fleet import grpc, pb, pb_grpc  # noqa: E402
from xds.service.orca.v3 import orca_pb2, orca_pb2_grpc  # noqa: E402

SHARES = (0.60, 0.30, 0.15)  # of each worker's cache


def policy(out_of_band):
    return json.dumps({"loadBalancingConfig": [{"weighted_round_robin": {
        "enableOobLoadReport": out_of_band, "oobReportingPeriod": "0.1s", "blackoutPeriod": "0.1s",
        "weightUpdatePeriod": "0.1s"}}]})


def num_refused(worker):
    """Calls of Generate whose arguments the worker has refused."""
    return sum(v for k, v in fleet.scrape(worker.metrics_address).items()
               if k.startswith("continuo_requests_total") and 'code="INVALID_ARGUMENT"' in k)


class Reports:
    """What one worker tells out of band, as it comes."""

    def __init__(self, worker):
        request = orca_pb2.OrcaLoadReportRequest()
        request.report_interval.FromMilliseconds(100)
        self.channel = grpc.insecure_channel(worker.address)
        self.call = orca_pb2_grpc.OpenRcaServiceStub(self.channel).StreamCoreMetrics(request, timeout=300)
        self.utilizations = []
        self.changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for report in self.call:
                with self.changed:
                    self.utilizations.append(report.application_utilization)
                    self.changed.notify_all()
        except grpc.RpcError:
            pass  # cancelled at the end, or killed

    def await_more(self, number):
        """Waits for that many further reports."""
        with self.changed:
            goal = len(self.utilizations) + number
            self.changed.wait_for(lambda: len(self.utilizations) >= goal, timeout=30)

    def weight(self, first):
        """The mean weight by the reports from the first on."""
        with self.changed:
            told = self.utilizations[first:]
        return sum(1 / u for u in told) / len(told)


class WeightedRoundRobinTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.workers = filled_cache.start_workers(self.folder.name, len(SHARES))
        for worker in self.workers:
            fleet.Client(worker.address).wait_for_model()

    def tearDown(self):
        for program in self.workers:
            program.kill()
        self.folder.cleanup()

    def connect(self, out_of_band):
        addresses = ",".join(worker.address for worker in self.workers)
        channel = grpc.insecure_channel(f"ipv4:{addresses}", options=[
            ("grpc.service_config", policy(out_of_band)), ("grpc.use_local_subchannel_pool", 1)])
        self.addCleanup(channel.close)
        self.stub = pb_grpc.InferenceServiceStub(channel)

    def call(self):
        """A call that its worker refuses at once, so that it takes no part of the load."""
        request = pb.GenerateRequest()
        request.sampling.temperature = -1
        try:
            list(self.stub.Generate(request, timeout=30))
        except grpc.RpcError as error:
            return error.code()
        raise AssertionError("it was not refused")

    def received(self, workers, number):
        before = [num_refused(w) for w in workers]
        for _ in range(number):
            self.assertEqual(self.call(), grpc.StatusCode.INVALID_ARGUMENT)
        return [num_refused(w) - b for w, b in zip(workers, before)]

    def expect_shares(self, workers, reports, number):
        """Calls until a round of them goes by the weights that are told meanwhile, and returns the shares. A client
        makes its weights anew by a timer, so that a busy machine may need some rounds."""
        for _ in range(8):
            self.received(workers, 40)  # each tells its load in the trailers, if it is read there
            for report in reports:
                report.await_more(4)
            first = [len(report.utilizations) - 1 for report in reports]
            received = self.received(workers, number)
            for holder in self.held[:len(workers)]:
                holder.check()
            weights = [report.weight(f) for report, f in zip(reports, first)]
            shares = [w / sum(weights) for w in weights]
            print([f"{r:.0f} of {number}, by 1 / utilization {s * number:.0f}" for r, s in zip(received, shares)])
            if all(abs(got / (share * number) - 1) <= 0.1 for got, share in zip(received, shares)):
                return shares
        self.fail("shares do not follow 1 / utilization")

    def test_shares_follow_utilization(self):
        reports = [Reports(worker) for worker in self.workers]
        self.connect(out_of_band=True)
        self.call()
        self.held = [filled_cache.Held(worker, int(CONTEXT * share))
                     for worker, share in zip(self.workers, SHARES)]
        shares = self.expect_shares(self.workers, reports, 700)
        self.assertGreater(shares[2], 1.5 * shares[0])
        self.workers[2].kill()
        while self.call() != grpc.StatusCode.INVALID_ARGUMENT:
            pass  # what was on its way to the dead worker
        for out_of_band in (True, False):
            self.connect(out_of_band)
            shares = self.expect_shares(self.workers[:2], reports[:2], 300)
            self.assertGreater(shares[1], 1.2 * shares[0])
        for holder in self.held[:2]:
            holder.release()
        for report in reports:
            report.call.cancel()


if __name__ == "__main__":
    unittest.main(verbosity=2)
