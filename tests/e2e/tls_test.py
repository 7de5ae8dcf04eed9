#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""TLS on every hop of a real fleet: who is refused, and certificates renewed under open streams."""
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import certificates  # noqa: E402
import fleet  # noqa: E402
from fleet import grpc, pb, worker_pb  # noqa: E402

WAIT_S = 60


def long_request(seed, max_tokens=800):
    request = pb.GenerateRequest()
    request.text = "Mira lives in Oslo."
    request.sampling.seed = seed
    request.stopping.max_tokens = max_tokens
    request.stopping.ignore_eos = True
    return request


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


class MutualTls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.authority = certificates.Authority()
        for serial, name in enumerate(("worker", "gateway", "client"), start=1):
            cls.authority.issue(name, serial)
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL,
                                        *certificates.flags(cls.authority, "worker"))
        cls.gateway = fleet.start_gateway([cls.worker],
                                          *certificates.flags(cls.authority, "gateway"),
                                          f"--worker_tls_server_name={certificates.NAME}")
        cls.client = cls.connect(cls.authority.files("client"))
        cls.client.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()

    @classmethod
    def connect(cls, shown, address=None, trust=None):
        return certificates.client(address or cls.gateway.address, trust or cls.authority, shown)

    def list_models(self, client):
        return code_of(lambda: client.inference.ListModels(pb.ListModelsRequest(), timeout=WAIT_S))

    def test_only_a_valid_certificate_of_the_ca_comes_in(self):
        stranger = certificates.Authority()
        expired = self.authority.issue("expired", 9, days=-1)
        for address in self.gateway.address, self.worker.address:
            good = self.connect(self.authority.files("client"), address)
            self.assertEqual(self.list_models(good), grpc.StatusCode.OK)
            for shown in None, stranger.issue("stranger", 8), expired:
                self.assertEqual(self.list_models(self.connect(shown, address)),
                                 grpc.StatusCode.UNAVAILABLE)
            # A client does not trust a server of another CA, and a server does not accept a client
            # without TLS.
            self.assertEqual(
                self.list_models(self.connect(self.authority.files("client"), address, stranger)),
                grpc.StatusCode.UNAVAILABLE)
            self.assertEqual(self.list_models(fleet.Client(address)), grpc.StatusCode.UNAVAILABLE)

    def test_a_gateway_takes_no_worker_of_another_ca(self):
        stranger = certificates.Authority()
        stranger.issue("worker", 5)
        worker = fleet.start_worker(fleet.DEMO_MODEL, *certificates.flags(stranger, "worker"))
        gateway = fleet.start_gateway([worker], *certificates.flags(self.authority, "gateway"),
                                      f"--worker_tls_server_name={certificates.NAME}",
                                      "--no_worker_wait=2s")
        try:
            client = self.connect(self.authority.files("client"), gateway.address)
            self.assertIn(code_of(lambda: client.generate(long_request(1), timeout=WAIT_S)),
                          (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND))
            # With that CA for workers it connects; towards clients nothing changes.
            second = fleet.start_gateway([worker], *certificates.flags(self.authority, "gateway"),
                                         *(f.replace("--tls", "--worker_tls")
                                           for f in certificates.flags(stranger, "worker")),
                                         f"--worker_tls_server_name={certificates.NAME}")
            try:
                client = self.connect(self.authority.files("client"), second.address)
                client.wait_for_model()
                self.assertEqual(len(client.generate(long_request(1, 5)).ids[0]), 5)
            finally:
                second.kill()
        finally:
            gateway.kill()
            worker.kill()

    def test_names_tell_who_of_the_ca_is_a_peer(self):
        authority = certificates.Authority()
        spiffe = "URI:spiffe://fleet.test/ns/llm/sa"
        for serial, (name, names) in enumerate((
                ("worker", f"{spiffe}/worker"), ("gateway", f"{spiffe}/gateway"),
                ("ops", "DNS:ops.fleet.test"), ("client", "DNS:client.test"),
                ("old", f"DNS:worker.old.test,DNS:{certificates.NAME}")), start=1):
            authority.issue(name, serial, names=names)
        names = f"{spiffe.removeprefix('URI:')}/gateway,*.fleet.test"

        def start(name, *flags):
            worker = fleet.start_worker(fleet.DEMO_MODEL, *certificates.flags(authority, name),
                                        f"--tls_client_names={names}", *flags)
            self.addCleanup(worker.kill)
            return worker

        def gateway(worker, *flags):
            result = fleet.start_gateway([worker], *flags, "--no_worker_wait=1s", *(
                f.replace("--tls", "--worker_tls") for f in certificates.flags(authority, "gateway")))
            self.addCleanup(result.kill)
            return fleet.Client(result.address)
        worker = start("worker")
        expected = "--worker_tls_names=spiffe://fleet.test/ns/llm/sa/*"
        through = gateway(worker, expected)
        through.wait_for_model()
        self.assertEqual(len(through.generate(long_request(1, 5)).ids[0]), 5)

        # The worker's certificate has no name that stock clients could look for, the old one has.
        stock = start("old")
        denied, ok = grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.OK
        for shown, expected_code in (("ops", ok), ("gateway", ok), ("client", denied)):
            client = self.connect(authority.files(shown), stock.address, authority)
            for call in (lambda: client.inference.ListModels(pb.ListModelsRequest(), timeout=WAIT_S),
                         lambda: next(client.worker.WatchLoad(worker_pb.WatchLoadRequest(),
                                                              timeout=WAIT_S)),
                         lambda: client.worker.Abort(worker_pb.AbortRequest(request_id="none"),
                                                     timeout=WAIT_S)):
                self.assertEqual(code_of(call), expected_code, shown)
        refused = self.connect(authority.files("client"), stock.address, authority)
        self.assertEqual(code_of(lambda: refused.worker.Drain(worker_pb.DrainRequest(),
                                                              timeout=WAIT_S)), denied)

        # A gateway that expects other names does not speak to the worker of this one.
        unavailable = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND)
        for other in (stock, expected), (worker, "--worker_tls_names=spiffe://fleet.test/ns/other/sa/*"):
            client = gateway(*other)
            self.assertIn(code_of(lambda: client.generate(long_request(1, 5), timeout=WAIT_S)),
                          unavailable)

    def test_certificates_are_renewed_under_open_streams(self):
        reference = {seed: self.client.generate(long_request(seed)).comparable()
                     for seed in range(2)}
        begun, stop, failures, streams = threading.Event(), threading.Event(), [], []

        def traffic(seed):
            client = self.connect(self.authority.files("client"))
            while not stop.is_set():
                try:
                    answer = client.generate(long_request(seed), on_response=lambda _: begun.set())
                    streams.append(seed)
                    if answer.comparable() != reference[seed]:
                        failures.append("another answer")
                    if answer.summary.migrations:
                        failures.append("the stream migrated")
                except grpc.RpcError as error:
                    failures.append(error)

        threads = [threading.Thread(target=traffic, args=(seed,)) for seed in reference]
        for thread in threads:
            thread.start()
        try:
            self.assertTrue(begun.wait(WAIT_S))
            for serial, name in (101, "worker"), (102, "gateway"), (103, "client"):
                self.authority.issue(name, serial)
            shown = self.authority.files("client")
            for program, serial in (self.worker, 101), (self.gateway, 102):
                program.wait_for_log("new TLS files", WAIT_S)
                # gRPC reads the checked copies once a second.
                for _ in range(100):
                    if certificates.served_serial(program.address, self.authority,
                                                  shown) == serial:
                        break
                    threading.Event().wait(0.05)
                else:
                    self.fail(f"serial {serial} is not served")
            done = len(streams)
            new = self.connect(shown)
            self.assertEqual(new.generate(long_request(0)).comparable(), reference[0])
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(len(streams), done)

        # A new connection of the gateway to the worker also shows the new certificates on both
        # sides.
        worker = fleet.start_worker(fleet.DEMO_MODEL,
                                    *certificates.flags(self.authority, "worker"))
        gateway = fleet.start_gateway([worker], *certificates.flags(self.authority, "gateway"),
                                      f"--worker_tls_server_name={certificates.NAME}")
        self.connect(shown, gateway.address).wait_for_model()
        gateway.kill()
        worker.kill()


class BadFlags(unittest.TestCase):
    def test_what_contradicts_itself_is_one_line_at_the_start(self):
        authority = certificates.Authority()
        certificate, key = authority.issue("one", 1)
        _, other_key = authority.issue("other", 2)
        old_certificate, old_key = authority.issue("old", 3, days=-1)
        keys = authority.folder / "keys"
        keys.write_text("alice key-of-alice-0123\n")
        for flags, told in (
                ([f"--tls_cert_file={certificate}"], "--tls_key_file is needed"),
                ([f"--tls_ca_file={authority.ca}"], "--tls_cert_file and --tls_key_file are needed"),
                ([f"--tls_cert_file={certificate}", f"--tls_key_file={other_key}"],
                 "the key is not that of the certificate"),
                ([f"--tls_cert_file={old_certificate}", f"--tls_key_file={old_key}"],
                 "has expired"),
                ([f"--tls_cert_file={keys}", f"--tls_key_file={key}"], "has no certificate"),
                ([f"--worker_tls_key_file={key}"], "--worker_tls_cert_file is needed"),
                (["--worker_tls_server_name=x"], "--worker_tls_server_name is of no use"),
                ([f"--api_keys_file={authority.folder}/none"], "--api_keys_file"),
                ([f"--api_keys_file={key}"], "must be a tenant and a key"),
                ([f"--api_keys_file={keys}", "--trust_tenant_header"], "exclude each other")):
            with self.subTest(told):
                gateway = fleet.Program("continuo-gateway", "--workers=127.0.0.1:1",
                                        "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                                        "--http_listen=127.0.0.1:0", *flags)
                self.assertEqual(gateway.process.wait(WAIT_S), 2)
                gateway._reader.join(WAIT_S)
                self.assertEqual(len(gateway.lines), 1, gateway.lines)
                self.assertIn(told, gateway.lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
