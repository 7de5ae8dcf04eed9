#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The --tenant_* flags of a real gateway, and that a tenant whose gateway dies goes on at another
one beyond its rate."""
import pathlib
import sys
import unittest

import grpc

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402


def request():
    result = pb.GenerateRequest(text="Once upon a time")
    result.stopping.max_tokens = 8
    result.stopping.ignore_eos = True
    result.sampling.seed = 7
    return result


class TenantLimitsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1")

    @classmethod
    def tearDownClass(cls):
        cls.worker.terminate()

    def start(self, *flags, env=None):
        gateway = fleet.start_gateway([self.worker], "--trust_tenant_header", *flags, env=env)
        self.addCleanup(gateway.kill)
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        return gateway, client

    def generate(self, client, tenant, message=None):
        return client.generate(message or request(), metadata=(("x-tenant-id", tenant),))

    def assert_limited(self, client, tenant, limit):
        with self.assertRaises(grpc.RpcError) as refused:
            self.generate(client, tenant)
        self.assertEqual(refused.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertIn(limit, refused.exception.details())

    def test_requests_per_second(self):
        _, client = self.start("--tenant_requests_per_second=0.01")
        self.generate(client, "a")
        self.assert_limited(client, "a", "0.01 requests a second")
        self.generate(client, "b")

    def test_prompt_tokens_per_second_from_the_environment(self):
        _, client = self.start(env={"CONTINUO_TENANT_PROMPT_TOKENS_PER_SECOND": "0.1"})
        self.generate(client, "a")
        self.assert_limited(client, "a", "0.1 prompt tokens a second")
        self.generate(client, "b")

    def test_open_requests(self):
        _, client = self.start("--tenant_max_open_requests=1")
        long = request()
        long.stopping.max_tokens = 400
        call = client.inference.Generate(long, metadata=(("x-tenant-id", "a"),), timeout=60)
        next(call)
        self.assert_limited(client, "a", "1 open requests")
        self.generate(client, "b")
        call.cancel()

    def test_streams_of_a_gateway_that_dies_go_on_beyond_the_rate(self):
        _, other = self.start("--tenant_requests_per_second=0.01")
        undisturbed = self.generate(other, "b").comparable()
        gateway, client = self.start()
        calls = []
        for _ in range(5):
            message = request()
            call = client.inference.Generate(message, metadata=(("x-tenant-id", "a"),), timeout=60)
            received = [next(call)]
            message.continuation.received.MergeFrom(received[0])
            calls.append((message, received))
        gateway.kill()
        for message, received in calls:
            rest = self.generate(other, "a", message)
            self.assertEqual(fleet.Answer(received + rest.responses).comparable(), undisturbed)
        self.assert_limited(other, "a", "0.01 requests a second")


if __name__ == "__main__":
    unittest.main(verbosity=2)
