#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keys and tenants of a real fleet: who comes in, as whom, and what tenants see of each other."""
import os
import pathlib
import subprocess
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import certificates  # noqa: E402
import fleet  # noqa: E402
from fleet import grpc, pb, worker_pb  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase)

ALICE = (("authorization", "Bearer key-of-alice-0123"),)
BOB = (("authorization", "Bearer key-of-bob-456789"),)
WAIT_S = 60


def request(text, max_tokens=4, request_id="", salt=""):
    result = pb.GenerateRequest(request_id=request_id)
    result.text = text
    result.sampling.seed = 1
    result.stopping.max_tokens = max_tokens
    result.stopping.ignore_eos = True
    result.cache.salt = salt
    return result


def prompt(name):
    """A prompt of more than a KV block that no other test has."""
    return f"{name} " + "lives in Oslo and likes the sea. " * 20


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def cached(client, text, metadata=(), salt=""):
    """Prompt tokens that were found in the prefix cache."""
    answer = client.generate(request(text, salt=salt), metadata=metadata)
    return answer.summary.usage.cached_prompt_tokens


class Keys(unittest.TestCase):
    def setUp(self):
        authority = certificates.Authority()
        self.keys = authority.folder / "keys"
        self.write("alice key-of-alice-0123\n")
        self.worker = fleet.start_worker()
        self.gateway = fleet.start_gateway([self.worker], f"--api_keys_file={self.keys}")
        self.client = fleet.Client(self.gateway.address)
        for _ in range(WAIT_S * 50):
            if self.num_workers() == 1:
                break
            threading.Event().wait(0.02)  # polls another process

    def tearDown(self):
        self.gateway.kill()
        self.worker.kill()

    def write(self, text):
        new = self.keys.with_suffix(".new")
        new.write_text(text)
        os.replace(new, self.keys)

    def num_workers(self):
        models = self.client.inference.ListModels(pb.ListModelsRequest(), metadata=ALICE,
                                                  timeout=WAIT_S).models
        return models[0].num_workers if models else 0

    def code(self, metadata):
        return code_of(lambda: self.client.generate(request("once"), metadata=metadata))

    def test_keys_change_without_a_restart(self):
        denied, ok = grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.OK
        self.assertEqual([self.code(ALICE), self.code(BOB), self.code(())], [ok, denied, denied])
        self.write("alice key-of-alice-0123\nbob key-of-bob-456789\n")
        self.gateway.wait_for_log("new keys", WAIT_S)
        self.assertEqual([self.code(ALICE), self.code(BOB), self.code(())], [ok, ok, denied])
        self.write("alice\n")
        record = self.gateway.wait_for_log("new keys are bad, the ones before stay", WAIT_S)
        self.assertEqual(record["severity"], "ERROR")
        self.assertEqual([self.code(ALICE), self.code(BOB)], [ok, ok])
        self.write("bob key-of-bob-456789\n")
        self.gateway.wait_for_log("new keys", WAIT_S)
        self.assertEqual([self.code(ALICE), self.code(BOB)], [denied, ok])

    def test_strangers_are_counted_whatever_they_call(self):
        def strangers():
            return fleet.scrape(self.gateway.metrics_address)[
                "continuo_gateway_unauthenticated_total"]
        before = strangers()
        self.code(())
        self.assertEqual(strangers(), before + 1)
        denied = grpc.StatusCode.UNAUTHENTICATED
        for method, message in (("Tokenize", pb.TokenizeRequest(text="a")),
                                ("Detokenize", pb.DetokenizeRequest()),
                                ("Embed", pb.EmbedRequest()), ("GetModel", pb.GetModelRequest()),
                                ("ListModels", pb.ListModelsRequest())):
            self.assertEqual(code_of(lambda: getattr(self.client.inference, method)(
                message, metadata=BOB, timeout=WAIT_S)), denied, method)
        self.assertEqual(strangers(), before + 6)
        with self.assertRaises(urllib.error.HTTPError):
            urllib.request.urlopen(f"http://{self.gateway.http_address}/v1/models",
                                   timeout=WAIT_S)
        self.assertEqual(strangers(), before + 7)
        self.assertEqual(self.code(ALICE), grpc.StatusCode.OK)
        self.assertEqual(strangers(), before + 7)

    def test_health_and_reflection_need_no_key(self):
        health = health_pb2_grpc.HealthStub(self.client.channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        services = ProtoReflectionDescriptorDatabase(self.client.channel).get_services()
        self.assertIn("continuo.v1.InferenceService", services)

    def test_a_key_sees_its_own_tenants_prefixes_and_no_others(self):
        self.write("alice key-of-alice-0123\nalice second-of-alice-01\nbob key-of-bob-456789\n")
        self.gateway.wait_for_log("new keys", WAIT_S)
        text = prompt("Mira")
        self.assertEqual(cached(self.client, text, ALICE), 0)
        self.assertEqual(cached(self.client, text, BOB), 0)
        self.assertEqual(cached(self.client, prompt("Nora"), BOB), 0)
        self.assertEqual(cached(self.client, prompt("Nora"),
                                ALICE + (("x-tenant-id", "bob"),)), 0)
        self.assertGreater(cached(self.client, text, ALICE), 0)
        second = (("authorization", "Bearer second-of-alice-01"),)
        self.assertGreater(cached(self.client, text, second), 0)
        self.assertEqual(cached(self.client, text, ALICE, salt="other"), 0)


class WorkersTrust(unittest.TestCase):
    """Tests when a worker believes x-tenant-id and x-continuo-move, called without a gateway."""

    @classmethod
    def setUpClass(cls):
        cls.authority = certificates.Authority()
        for serial, name in enumerate(("worker", "client"), start=1):
            cls.authority.issue(name, serial)

    def worker(self, *flags):
        worker = fleet.start_worker(fleet.DEMO_MODEL, *flags)
        self.addCleanup(worker.kill)
        return worker

    def expect(self, client, believed):
        client.wait_for_model()
        alice, bob = (("x-tenant-id", "alice"),), (("x-tenant-id", "bob"),)
        self.assertEqual(cached(client, prompt("Mira"), alice), 0)
        self.assertEqual(cached(client, prompt("Mira"), bob) == 0, believed)
        self.assertGreater(cached(client, prompt("Mira"), alice), 0)

        # A client's own continuation is replaced by another one of its tenant, never by a migration.
        first = request("Nora", max_tokens=900, request_id="one")
        first.continuation.SetInParent()
        begun, codes = threading.Event(), []
        live = threading.Thread(target=lambda: codes.append(code_of(
            lambda: client.generate(first, metadata=alice, on_response=lambda _: begun.set()))))
        live.start()
        self.assertTrue(begun.wait(WAIT_S))
        migration = code_of(lambda: client.generate(
            first, metadata=alice + (("x-continuo-move", "1"),)))
        live.join()
        ok, aborted = grpc.StatusCode.OK, grpc.StatusCode.ABORTED
        self.assertEqual([codes[0], migration], [ok, aborted] if believed else [aborted, ok])

        drained = code_of(lambda: client.worker.Drain(worker_pb.DrainRequest(), timeout=WAIT_S))
        self.assertEqual(drained, ok if believed else grpc.StatusCode.PERMISSION_DENIED)

    def test_without_tls_everybody_is_believed(self):
        self.expect(fleet.Client(self.worker().address), believed=True)

    def test_with_tls_strangers_are_not(self):
        worker = self.worker(*certificates.flags(self.authority, "worker", mutual=False))
        self.expect(certificates.client(worker.address, self.authority), believed=False)

    def test_with_tls_a_certificate_that_no_ca_vouches_for_is_not(self):
        worker = self.worker(*certificates.flags(self.authority, "worker", mutual=False))
        self.expect(certificates.client(worker.address, self.authority,
                                        self.authority.files("client")), believed=False)

    def test_with_mutual_tls_peers_are(self):
        worker = self.worker(*certificates.flags(self.authority, "worker"))
        self.expect(certificates.client(worker.address, self.authority,
                                        self.authority.files("client")), believed=True)


class MetricsToken(unittest.TestCase):
    """A fleet whose metrics are for readers with a token."""

    def test_metrics_are_for_readers_with_the_token_of_the_moment(self):
        path = pathlib.Path(certificates.Authority().folder) / "scrapers"
        old, new = "token-of-a-scraper-old", "token-of-a-scraper-new"

        def write(*tokens):
            path.with_suffix(".new").write_text("".join(f"{t}\n" for t in tokens))
            os.replace(path.with_suffix(".new"), path)

        write(old)
        flag = f"--metrics_token_file={path}"
        worker = fleet.start_worker(fleet.DEMO_MODEL, flag)
        self.addCleanup(worker.kill)
        gateway = fleet.start_gateway([worker], flag)
        self.addCleanup(gateway.kill)
        fleet.Client(gateway.address).wait_for_model()

        def get(program, page, token=""):
            call = urllib.request.Request(f"http://{program.metrics_address}/{page}",
                                          headers={"Authorization": f"Bearer {token}"} if token else {})
            try:
                with urllib.request.urlopen(call, timeout=WAIT_S) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        for program, series in ((worker, "continuo_running_requests"), (gateway, "continuo_gateway_workers")):
            status, page = get(program, "metrics", old)
            self.assertEqual(status, 200)
            self.assertIn(series, page)
            for token in ("", new, old[:-1]):
                status, page = get(program, "metrics", token)
                self.assertEqual(status, 401, token)
                self.assertNotIn("continuo", page)
            self.assertEqual(get(program, "healthz")[0], 200)
        # A gateway's clients reach another port of it.
        for token in ("", old):
            call = urllib.request.Request(f"http://{gateway.http_address}/metrics",
                                          headers={"Authorization": f"Bearer {token}"})
            with self.assertRaises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(call, timeout=WAIT_S)
            self.assertEqual(refused.exception.code, 404)
        # What endpoint pickers read, who have none, names nobody.
        with urllib.request.urlopen(f"http://{gateway.http_address}/metrics/load", timeout=WAIT_S) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines() if line[0] != "#"]
        self.assertEqual(sorted(lines), [["continuo_gateway_open_streams", "0"], ["continuo_gateway_queued_requests", "0"],
                                         ["continuo_gateway_saturation_ratio", "0"]])
        write(new)
        for program in (worker, gateway):
            fleet.wait_until(lambda program=program: get(program, "metrics", new)[0] == 200, "the new token")
            self.assertEqual(get(program, "metrics", old)[0], 401)


class Token(unittest.TestCase):
    """A fleet whose programs know each other by a token."""
    OLD, NEW = "token-of-the-fleet-old", "token-of-the-fleet-new"

    def setUp(self):
        self.folder = certificates.Authority().folder
        self.write("worker", self.OLD)
        self.write("gateway", self.OLD)
        self.worker = fleet.start_worker(fleet.DEMO_MODEL, self.flag("worker"))
        self.addCleanup(self.worker.kill)
        self.gateway = fleet.start_gateway([self.worker], self.flag("gateway"), "--no_worker_wait=2s")
        self.addCleanup(self.gateway.kill)
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model()

    def flag(self, program):
        return f"--token_file={self.folder}/{program}"

    def write(self, program, *tokens):
        path = self.folder / program
        path.with_suffix(".new").write_text("".join(f"{t}\n" for t in tokens))
        os.replace(path.with_suffix(".new"), path)

    def test_strangers_reach_nothing_of_a_worker(self):
        stranger = fleet.Client(self.worker.address)
        refused = grpc.StatusCode.UNAUTHENTICATED
        for metadata in ((), (("x-continuo-token", "token-of-the-fleet-bad"),),
                         (("x-continuo-token", ""),), (("authorization", f"Bearer {self.OLD}"),)):
            for method, message in (("Drain", worker_pb.DrainRequest()),
                                    ("Abort", worker_pb.AbortRequest(request_id="one"))):
                self.assertEqual(code_of(lambda: getattr(stranger.worker, method)(
                    message, metadata=metadata, timeout=WAIT_S)), refused, method)
            for method, message in (("WatchLoad", worker_pb.WatchLoadRequest()),
                                    ("WatchSteps", worker_pb.WatchStepsRequest())):
                self.assertEqual(code_of(lambda: next(getattr(stranger.worker, method)(
                    message, metadata=metadata, timeout=WAIT_S))), refused, method)
            self.assertEqual(code_of(lambda: stranger.generate(request("once"), metadata=metadata)),
                             refused)
        health = health_pb2_grpc.HealthStub(stranger.channel)
        answer = health.Check(health_pb2.HealthCheckRequest(), timeout=WAIT_S)
        self.assertEqual(answer.status, health_pb2.HealthCheckResponse.SERVING)
        self.assertEqual([value for series, value in
                          fleet.scrape(self.worker.metrics_address).items()
                          if series.startswith("continuo_refused_peers_total")], [20])
        # Through the gateway a client needs none.
        self.assertEqual(len(self.client.generate(request("once")).ids[0]), 4)

    def test_an_operator_with_the_token_is_let_in(self):
        operator = fleet.Client(self.worker.address)
        metadata = (("x-continuo-token", self.OLD),)
        self.assertFalse(operator.worker.Abort(worker_pb.AbortRequest(request_id="none"),
                                               metadata=metadata, timeout=WAIT_S).aborted)

        def told(*flags):
            done = subprocess.run([fleet.BIN / "continuo", "fleet", f"--workers={self.worker.address}",
                                   *flags], capture_output=True, text=True, timeout=WAIT_S)
            return (done.stdout + done.stderr).lower()
        self.assertIn("peer_token", told())
        self.assertNotIn("peer_token", told(self.flag("gateway")))
        self.assertIn("serving", told(self.flag("gateway")))
        self.assertIn("--token_file", told("--token_file=/nowhere"))

    def test_the_token_changes_under_open_streams(self):
        def begin():
            long = request("Nora", max_tokens=900)
            begun, answers = threading.Event(), []
            thread = threading.Thread(target=lambda: answers.append(
                self.client.generate(long, on_response=lambda _: begun.set())))
            thread.start()
            self.assertTrue(begun.wait(WAIT_S))
            return thread, answers
        thread, answers = begin()
        # Both are taken, then the new one is sent, then the old one is none any more.
        for program, tokens in (("worker", (self.OLD, self.NEW)), ("gateway", (self.NEW,)),
                                ("worker", (self.NEW,))):
            self.write(program, *tokens)
            getattr(self, program).wait_for_log("new tokens", WAIT_S)
            self.assertEqual(len(self.client.generate(request("once")).ids[0]), 4)
        thread.join(WAIT_S)
        self.assertEqual(answers[0].summary.migrations, 0)
        stale = fleet.Client(self.worker.address)
        self.assertEqual(code_of(lambda: stale.worker.Abort(
            worker_pb.AbortRequest(request_id="one"), metadata=(("x-continuo-token", self.OLD),),
            timeout=WAIT_S)), grpc.StatusCode.UNAUTHENTICATED)

    def test_a_gateway_with_another_token_says_so(self):
        self.write("other", "token-of-the-fleet-bad")
        gateway = fleet.start_gateway([self.worker], self.flag("other"), "--no_worker_wait=1s")
        self.addCleanup(gateway.kill)
        record = gateway.wait_for_log("worker refuses this gateway", WAIT_S)
        self.assertEqual((record["severity"], record["reason"]), ("ERROR", "PEER_TOKEN"))
        self.assertNotIn("token-of-the-fleet", str(gateway.lines))
        # The client hears nothing of a token.
        code = code_of(lambda: fleet.Client(gateway.address).generate(request("once")))
        self.assertIn(code, (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.NOT_FOUND))


if __name__ == "__main__":
    unittest.main(verbosity=2)
