# SPDX-License-Identifier: Apache-2.0
"""A pool goes from zero to one worker for the first request: a stock gRPC client asks the gateways as
KEDA does, and starts the worker when it is told to."""
import concurrent.futures
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from externalscaler import externalscaler_pb2 as scaler_pb  # noqa: E402
from externalscaler import externalscaler_pb2_grpc as scaler_grpc  # noqa: E402

grpc, pb = fleet.grpc, fleet.pb
REFERENCE = scaler_pb.ScaledObjectRef(name="pool", namespace="prod",
                                      scalerMetadata={"model": "cold", "queuedTokens": "1000"})


class ScalerTest(unittest.TestCase):
    def setUp(self):
        self.programs = []
        self.addCleanup(lambda: [program.kill() for program in self.programs])
        self.warm = self.started(fleet.start_worker(fleet.DEMO_MODEL, "--model_name=warm"))
        self.port = fleet.free_port()
        # Each gateway knows the scaler of the other one, and its own.
        ports = [fleet.free_port(), fleet.free_port()]
        peers = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.gateways = [
            self.started(fleet.start_gateway(
                f"{self.warm.address}@1;127.0.0.1:{self.port}@1", "--models=cold,warm",
                "--no_worker_wait=100ms", f"--scaler_listen=127.0.0.1:{port}",
                f"--scaler_peers={peers}"))
            for port in ports]
        self.clients = [fleet.Client(gateway.address) for gateway in self.gateways]
        channel = grpc.insecure_channel(f"127.0.0.1:{ports[0]}")
        self.addCleanup(channel.close)
        self.scaler = scaler_grpc.ExternalScalerStub(channel)

    def started(self, program):
        self.programs.append(program)
        return program

    def request(self, model):
        return pb.GenerateRequest(model=model, text="Once upon a time",
                                  stopping=pb.Stopping(max_tokens=5, ignore_eos=True))

    def models(self, client):
        return {m.name: m for m in client.inference.ListModels(pb.ListModelsRequest(), timeout=60).models}

    def test_a_request_at_any_gateway_wakes_the_pool(self):
        for client in self.clients:
            fleet.wait_until(lambda: self.models(client)["warm"].num_workers == 1, "warm is served")
            cold = self.models(client)["cold"]
            self.assertEqual((cold.num_workers, cold.undescribed), (0, True))
        self.assertFalse(self.scaler.IsActive(REFERENCE, timeout=60).result)
        told = threading.Event()
        stream = self.scaler.StreamIsActive(REFERENCE)
        self.assertFalse(next(stream).result)
        # As KEDA would, but that a Deployment starts a pod.
        def wait_for_demand():
            for response in stream:
                if response.result:
                    told.set()
                    return
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            waiter = pool.submit(wait_for_demand)
            # KEDA asks the first gateway, the client the second one.
            answer = pool.submit(self.clients[1].generate, self.request("cold"))
            self.assertTrue(told.wait(60), "the scaler did not tell of the request")
            waiter.result()
            metrics = self.scaler.GetMetrics(scaler_pb.GetMetricsRequest(
                scaledObjectRef=REFERENCE, metricName="queued_prompt_tokens"), timeout=60)
            self.assertGreater(metrics.metricValues[0].metricValue, 0)
            # The other model is not held up.
            self.assertEqual(len(self.clients[1].generate(self.request("warm")).ids[0]), 5)
            self.assertFalse(answer.done())
            self.started(fleet.start_worker(fleet.DEMO_MODEL, "--model_name=cold", port=self.port))
            self.assertEqual(len(answer.result().ids[0]), 5)
        stream.cancel()
        # What the worker tells of its model may come after its first answer.
        def described():
            cold = self.models(self.clients[1])["cold"]
            return (cold.num_workers, cold.undescribed) == (1, False)
        fleet.wait_until(described, "cold is described")
        fleet.wait_until(lambda: not self.scaler.IsActive(REFERENCE, timeout=60).result, "quiet again")

    def test_the_metric_is_that_of_the_trigger(self):
        spec = self.scaler.GetMetricSpec(REFERENCE, timeout=60).metricSpecs
        self.assertEqual([(s.metricName, s.targetSize) for s in spec], [("queued_prompt_tokens", 1000)])

    def test_an_unknown_model_is_told(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.scaler.IsActive(scaler_pb.ScaledObjectRef(scalerMetadata={"model": "other"}), timeout=60)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)


if __name__ == "__main__":
    unittest.main(verbosity=2)
