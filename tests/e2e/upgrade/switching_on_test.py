#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What docs/upgrade.md relies on where a token, keys or TLS are switched on in a fleet that serves: which
programs with and without them work together."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import certificates  # noqa: E402
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402


def request():
    result = pb.GenerateRequest(text="Mira lives in Oslo.")
    result.stopping.max_tokens = 4
    return result


class SwitchingOnTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def file(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def start(self, start, *arguments):
        program = start(*arguments)
        self.addCleanup(program.kill)
        return program

    def worker(self, *flags):
        return self.start(fleet.start_worker, fleet.DEMO_MODEL, *flags)

    def client(self, workers, *flags):
        """Of a new gateway before these workers."""
        gateway = self.start(fleet.start_gateway, workers, "--no_worker_wait=2s", *flags)
        return fleet.Client(gateway.address)

    def serves(self, client, num_workers):
        client.wait_for_model(num_workers)
        self.assertEqual(len(client.generate(request()).ids[0]), 4)

    def num_workers(self, client):
        models = client.inference.ListModels(pb.ListModelsRequest(), timeout=60).models
        return sum(m.num_workers for m in models)

    def test_a_token_comes_to_gateways_before_it_comes_to_workers(self):
        token = f"--token_file={self.file('token', 'token-of-the-fleet-one')}"
        old, new = self.worker(), self.worker(token)
        self.serves(self.client([old, new], token), num_workers=2)
        # A gateway that has none yet goes on with the workers that ask for none.
        client = self.client([old, new])
        self.serves(client, num_workers=1)
        old.kill()
        with self.assertRaises(grpc.RpcError) as refused:
            client.generate(request())
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_keys_come_to_clients_before_they_come_to_gateways(self):
        keys = self.file("keys", "alice key-of-alice-0123\n")
        worker = self.worker()
        shown = (("authorization", "Bearer key-of-alice-0123"),)
        for flags in ((), (f"--api_keys_file={keys}",)):
            gateway = self.start(fleet.start_gateway, [worker], *flags)
            client = fleet.Client(gateway.address)
            # Requests wait until the gateway knows its worker.
            self.assertEqual(len(client.generate(request(), metadata=shown).ids[0]), 4)

    def test_gateways_and_workers_meet_with_tls_or_without(self):
        authority = certificates.Authority()
        for serial, name in enumerate(("worker", "gateway"), start=1):
            authority.issue(name, serial)
        towards_workers = [f.replace("--tls", "--worker_tls")
                           for f in certificates.flags(authority, "gateway")]
        name = f"--worker_tls_server_name={certificates.NAME}"
        workers = [self.worker(), self.worker(*certificates.flags(authority, "worker"))]
        for flags in ((), (*towards_workers, name)):
            client = self.client(workers, *flags)
            self.serves(client, num_workers=1)
            self.assertEqual(self.num_workers(client), 1)


if __name__ == "__main__":
    unittest.main()
