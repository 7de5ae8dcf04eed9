# SPDX-License-Identifier: Apache-2.0
"""Spans of gateways and workers reach a collector and join into the client's trace; a collector
that is slow, gone or no collector costs spans and never a request. Records of the ledger reach it
as log records, those of a time without a collector later."""
import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import time
import unittest
import urllib.request
from concurrent import futures

import certificates
import fleet
from fleet import grpc, pb
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as otlp_logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as otlp_logs_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as otlp
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as otlp_grpc

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
SECRET = "zanzibar"  # in every prompt


class Collector(otlp_grpc.TraceServiceServicer):
    def __init__(self, blocked=False, authority=None):
        """With an authority it serves TLS, to clients with one of its certificates."""
        self.blocked, self.spans, self.services, self.raw = blocked, [], [], b""
        self.changed, self.ended = threading.Condition(), threading.Event()
        self.arrived = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        otlp_grpc.add_TraceServiceServicer_to_server(self, self.server)
        if authority:
            certificate, key = (p.read_bytes() for p in authority.files("collector"))
            credentials = grpc.ssl_server_credentials(
                [(key, certificate)], authority.ca.read_bytes(), require_client_auth=True)
            port = self.server.add_secure_port("127.0.0.1:0", credentials)
        else:
            port = self.server.add_insecure_port("127.0.0.1:0")
        # A certificate needs a name. Without one no name is looked up, for which c-ares 1.18 leaks
        # ten bytes that LeakSanitizer finds.
        self.address = f"{'localhost' if authority else '127.0.0.1'}:{port}"
        self.server.start()

    def Export(self, request, context):
        self.arrived.set()
        if self.blocked:
            self.ended.wait(120)
        with self.changed:
            self.raw += request.SerializeToString()
            for resource in request.resource_spans:
                names = {a.key: a.value.string_value for a in resource.resource.attributes}
                for scope in resource.scope_spans:
                    for span in scope.spans:
                        self.spans.append(span)
                        self.services.append(names["service.name"])
            self.changed.notify_all()
        return otlp.ExportTraceServiceResponse()

    def wait_for(self, number):
        """(spans by the service that sent them) once there are `number` in all."""
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.spans) >= number, timeout=60):
                raise TimeoutError(f"{len(self.spans)} spans instead of {number}")
            result = {}
            for service, span in zip(self.services, self.spans):
                result.setdefault(service, []).append(span)
            return result

    def stop(self):
        self.ended.set()
        self.server.stop(0)


class LogCollector(otlp_logs_grpc.LogsServiceServicer, otlp_grpc.TraceServiceServicer):
    """Takes log records; spans come to it, too, unless none are sampled."""

    def __init__(self, port=0):
        self.records, self.resources, self.changed = [], [], threading.Condition()
        self.server = grpc.server(futures.ThreadPoolExecutor(8))
        otlp_logs_grpc.add_LogsServiceServicer_to_server(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port(f'127.0.0.1:{port}')}"
        self.server.start()

    def Export(self, request, context):
        with self.changed:
            for resource in request.resource_logs:
                self.resources.append(attributes(resource.resource))
                for scope in resource.scope_logs:
                    self.records += scope.log_records
            self.changed.notify_all()
        return otlp_logs.ExportLogsServiceResponse()

    def wait_for(self, number):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.records) >= number, timeout=60):
                raise TimeoutError(f"{len(self.records)} records instead of {number}")
            return list(self.records)

    def stop(self):
        self.server.stop(0)


def attributes(of):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in of.attributes}


def request(max_tokens=20):
    r = pb.GenerateRequest(text=f"Mira lives in {SECRET}")
    r.stopping.max_tokens = max_tokens
    r.stopping.ignore_eos = True
    return r


class OtlpTest(unittest.TestCase):
    def setUp(self):
        self.programs, self.collectors = [], []

    def tearDown(self):
        for program in self.programs:
            program.kill()
        for collector in self.collectors:
            collector.stop()

    def collector(self, **keywords):
        self.collectors.append(Collector(**keywords))
        return self.collectors[-1]

    def start(self, num_workers, *flags):
        self.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1",
                                           "--kv_cache_memory=64MiB", *flags)
                        for _ in range(num_workers)]
        self.gateway = fleet.start_gateway(self.workers, *flags)
        self.programs += [self.gateway, *self.workers]
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(num_workers)

    def check_joined(self, gateway, worker):
        self.assertEqual(gateway.trace_id.hex(), TRACE)
        self.assertEqual(gateway.parent_span_id.hex(), PARENT)
        self.assertEqual(worker.trace_id.hex(), TRACE)
        self.assertEqual(worker.parent_span_id, gateway.span_id)
        self.assertNotEqual(worker.span_id, gateway.span_id)
        self.assertEqual(len(worker.span_id), 8)
        for span in (gateway, worker):
            self.assertLess(abs(span.start_time_unix_nano / 1e9 - time.time()), 600)
            self.assertLess(span.start_time_unix_nano, span.end_time_unix_nano)

    def test_gateway_and_worker_are_of_the_clients_trace(self):
        collector = self.collector()
        self.start(1, f"--otlp_endpoint={collector.address}")
        self.client.generate(request(), metadata=[("traceparent", TRACEPARENT),
                                                  ("x-request-id", "mine")])
        spans = collector.wait_for(2)
        gateway, worker = spans["continuo-gateway"][0], spans["continuo-worker"][0]
        self.check_joined(gateway, worker)
        self.assertEqual((gateway.name, worker.name), ("text_completion demo-model", "worker.generate"))
        seen = attributes(gateway)
        expected = {"gen_ai.operation.name": "text_completion", "gen_ai.provider.name": "continuo",
                    "gen_ai.response.model": "demo-model", "gen_ai.response.id": "mine",
                    "gen_ai.usage.output_tokens": 20, "continuo.pool": "0",
                    "rpc.grpc.status_code": 0, "continuo.request_id": "mine",
                    "continuo.tenant": "default", "continuo.migrations": 0}
        self.assertEqual({k: seen[k] for k in expected}, expected)
        for key in ("queue", "prefill", "time_to_first_token", "stall", "longest_gap",
                    "without_worker"):
            self.assertGreaterEqual(seen[f"continuo.{key}_seconds"], 0, key)
        self.assertEqual([e.name for e in gateway.events], ["worker"])
        told = attributes(worker)
        self.assertEqual(told["continuo.worker"], seen["continuo.worker"])
        self.assertEqual(told["gen_ai.usage.input_tokens"], seen["gen_ai.usage.input_tokens"])
        self.assertEqual(told["gen_ai.usage.output_tokens"], 20)
        for key in ("queue_seconds", "prefill_seconds", "decode_seconds", "preemptions",
                    "cached_prompt_tokens"):
            self.assertGreaterEqual(told[f"continuo.{key}"], 0, key)
        # The log lines have the same values.
        self.assertEqual([v.string_value for v in seen["gen_ai.response.finish_reasons"].values], ["length"])
        self.assertEqual(seen["gen_ai.request.max_tokens"], 20)
        line = self.gateway.wait_for_log("request")
        self.assertEqual((line["trace_id"], line["pool"]), (TRACE, "0"))
        for key in ("without_worker", "queue", "prefill", "stall", "longest_gap"):
            self.assertAlmostEqual(line[key], seen[f"continuo.{key}_seconds"], delta=1e-6)
        line = self.workers[0].wait_for_log("generate")
        self.assertEqual(line["trace_id"], TRACE)
        for key in ("queue", "prefill", "decode"):
            self.assertAlmostEqual(line[key], told[f"continuo.{key}_seconds"], delta=1e-6)
        self.assertNotIn(SECRET.encode(), collector.raw)

    def test_what_is_not_sampled_has_an_id_in_both_logs_and_no_span(self):
        collector = self.collector()
        self.start(1, f"--otlp_endpoint={collector.address}", "--trace_sample_ratio=0")
        self.client.generate(request())
        ids = {self.gateway.wait_for_log("request")["trace_id"],
               self.workers[0].wait_for_log("generate")["trace_id"]}
        self.assertRegex(ids.pop(), "^[0-9a-f]{32}$")
        self.assertFalse(ids, "the worker has another trace")
        # A client's own trace is recorded all the same, and is all that the collector gets.
        self.client.generate(request(), metadata=[("traceparent", TRACEPARENT)])
        spans = [span for of in collector.wait_for(2).values() for span in of]
        self.assertEqual({span.trace_id.hex() for span in spans}, {TRACE})

    def test_spans_go_over_tls(self):
        authority = certificates.Authority()
        authority.issue("collector", 2)
        certificate, key = authority.issue("client", 3)
        collector = self.collector(authority=authority)
        self.start(1, f"--otlp_endpoint={collector.address}", f"--otlp_tls_ca_file={authority.ca}",
                   f"--otlp_tls_cert_file={certificate}", f"--otlp_tls_key_file={key}")
        self.client.generate(request(), metadata=[("traceparent", TRACEPARENT)])
        spans = collector.wait_for(2)
        self.check_joined(spans["continuo-gateway"][0], spans["continuo-worker"][0])

    def test_a_collector_of_another_authority_gets_nothing(self):
        authority, other = certificates.Authority(), certificates.Authority()
        authority.issue("collector", 2)
        # The collector accepts this certificate, so that only the programs' trust decides.
        certificate, key = authority.issue("client", 3)
        collector = self.collector(authority=authority)
        self.start(1, f"--otlp_endpoint={collector.address}", f"--otlp_tls_ca_file={other.ca}",
                   f"--otlp_tls_cert_file={certificate}", f"--otlp_tls_key_file={key}")
        self.client.generate(request())
        self.gateway.wait_for_log("the collector takes no spans")
        self.assertEqual(collector.raw, b"")

    def test_http_has_spans_too_and_a_trace_of_its_own_where_none_came(self):
        collector = self.collector()
        self.start(1, f"--otlp_endpoint={collector.address}")
        url = f"http://{self.gateway.http_address}/v1/completions"

        def post(**headers):
            body = json.dumps({"prompt": f"Mira {SECRET}", "max_tokens": 3}).encode()
            with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
                response.read()
        post(traceparent=TRACEPARENT)
        spans = collector.wait_for(2)
        self.check_joined(spans["continuo-gateway"][0], spans["continuo-worker"][0])
        post()
        spans = collector.wait_for(4)
        gateway, worker = spans["continuo-gateway"][1], spans["continuo-worker"][1]
        self.assertEqual(gateway.parent_span_id, b"")
        self.assertNotEqual(gateway.trace_id.hex(), TRACE)
        self.assertEqual((worker.trace_id, worker.parent_span_id),
                         (gateway.trace_id, gateway.span_id))
        # A client that does not sample is not sampled; a rejected one is.
        post(traceparent=TRACEPARENT[:-1] + "0")
        with self.assertRaises(grpc.RpcError):
            r = request()
            r.sampling.temperature = 200
            self.client.generate(r)
        spans = collector.wait_for(5)
        self.assertEqual(attributes(spans["continuo-gateway"][2])["rpc.grpc.status_code"], 3)
        self.assertEqual(len(spans["continuo-worker"]), 2)
        self.assertNotIn(SECRET.encode(), collector.raw)

    def test_a_stream_that_lost_its_worker_is_one_trace(self):
        collector = self.collector()
        self.start(2, f"--otlp_endpoint={collector.address}")
        killed = []

        def kill(response):
            if killed or not response.deltas:
                return
            name = killed_name[0]
            killed.append(next(w for w in self.workers if name.endswith(f"#{w.process.pid}")))
            killed[0].process.kill()

        killed_name = []
        responses = []
        for response in self.client.inference.Generate(request(300), timeout=120,
                                                       metadata=[("traceparent", TRACEPARENT)]):
            responses.append(response)
            if response.HasField("accepted") and not killed_name:
                killed_name.append(response.accepted.worker)
            kill(response)
        self.assertEqual(len(fleet.Answer(responses).ids[0]), 300)
        spans = collector.wait_for(2)
        gateway, worker = spans["continuo-gateway"][0], spans["continuo-worker"][0]
        self.check_joined(gateway, worker)
        self.assertEqual([e.name for e in gateway.events], ["worker", "migration", "worker"])
        names = [attributes(e)["continuo.worker"] for e in gateway.events]
        self.assertEqual(names[0], killed_name[0])
        self.assertEqual(names[1], killed_name[0])
        self.assertEqual(attributes(gateway.events[1])["continuo.migration_reason"], "lost")
        self.assertEqual(names[2], attributes(worker)["continuo.worker"])
        self.assertEqual(attributes(gateway)["continuo.migrations"], 1)
        self.assertGreater(attributes(gateway)["continuo.stall_seconds"], 0)

    def check_harmless(self, endpoint):
        self.start(1, f"--otlp_endpoint={endpoint}")
        for _ in range(3):
            answer = self.client.generate(request(), metadata=[("traceparent", TRACEPARENT)])
            self.assertEqual(len(answer.ids[0]), 20)

    def check_ends(self):
        """Checks that the process ends at once, but for the second that the last spans get."""
        begin = time.monotonic()
        self.assertEqual(self.gateway.terminate(), 0)
        self.assertLess(time.monotonic() - begin, 20)

    def test_a_collector_that_is_not_there(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))  # and does not listen
            self.check_harmless("127.0.0.1:%d" % s.getsockname()[1])
            told = self.gateway.wait_for_log("the collector takes no spans")["dropped"]
            self.assertGreater(told, 0)
            counted = fleet.scrape(self.gateway.metrics_address)
            self.assertGreaterEqual(counted["continuo_gateway_spans_dropped_total"], told)
            told = self.workers[0].wait_for_log("the collector takes no spans")["dropped"]
            counted = fleet.scrape(self.workers[0].metrics_address)
            self.assertGreaterEqual(
                counted['continuo_spans_dropped_total{model="demo-model"}'], told)
            self.check_ends()

    def start_with_ledger(self, endpoint, ledger):
        self.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")]
        self.gateway = fleet.start_gateway(
            self.workers, f"--otlp_endpoint={endpoint}", "--trace_sample_ratio=0", "--usage_otlp",
            *([f"--usage_log={ledger}"] if ledger else []))
        self.programs += [self.gateway, *self.workers]
        self.client = fleet.Client(self.gateway.address)
        self.client.wait_for_model(1)

    def test_the_ledger_goes_to_the_collector_as_to_its_file(self):
        self.collectors.append(collector := LogCollector())
        with tempfile.TemporaryDirectory() as folder:
            ledger = pathlib.Path(folder, "ledger")
            self.start_with_ledger(collector.address, ledger)
            for number in (3, 5, 8):
                self.client.generate(request(number), metadata=[("x-request-id", f"r{number}")])
            call = self.client.inference.Generate(request(400), timeout=60)
            next(call)
            call.cancel()
            records = [attributes(record) for record in collector.wait_for(4)]
            self.assertEqual([record.event_name for record in collector.records], ["continuo.usage"] * 4)
            fleet.wait_until(lambda: ledger.read_text().count("\n") == 4, "four lines")
            lines = {line["call"]: line for line in map(json.loads, ledger.read_text().splitlines())}
        for record in records:
            line = lines.pop(record["call"])
            for key in ("time", "severity", "message"):
                del line[key]
            self.assertEqual(record, line)
        self.assertEqual(lines, {})
        self.assertEqual(sorted(r["delivered_tokens"] for r in records if r["outcome"] == "finished"),
                         [3, 5, 8])
        self.assertEqual([r["outcome"] for r in records if r["outcome"] != "finished"], ["cancelled"])
        self.assertEqual(collector.resources[0]["service.name"], "continuo-gateway")
        self.assertEqual(self.gateway.terminate(), 0)

    def test_records_wait_for_a_collector_that_is_gone(self):
        collector = LogCollector()
        port = int(collector.address.rsplit(":", 1)[1])
        self.start_with_ledger(collector.address, None)
        self.client.generate(request(3))
        collector.wait_for(1)
        # Calls in flight are answered first: a record whose batch was cut off is sent again.
        collector.server.stop(60).wait()
        for _ in range(3):
            self.client.generate(request(4))
        self.gateway.wait_for_log("the collector takes no records of the ledger")
        self.collectors.append(again := LogCollector(port))
        records = [attributes(record) for record in again.wait_for(3)]
        self.assertEqual(len({record["call"] for record in records}), 3)
        self.assertEqual({record["delivered_tokens"] for record in records}, {4})
        counted = fleet.scrape(self.gateway.metrics_address)
        self.assertEqual(counted["continuo_gateway_usage_records_dropped_total"], 0)

    def test_a_ledger_for_a_collector_needs_one(self):
        ended = subprocess.run(
            [fleet.BIN / "continuo-gateway", "--workers=127.0.0.1:1", "--listen=127.0.0.1:0",
             "--http_listen=off", "--metrics_listen=127.0.0.1:0", "--usage_otlp"],
            capture_output=True, text=True, timeout=60)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("--usage_otlp needs --otlp_endpoint", ended.stderr)

    def test_a_collector_that_does_not_answer(self):
        collector = self.collector(blocked=True)
        self.check_harmless(collector.address)
        self.assertTrue(collector.arrived.wait(60))
        self.check_harmless(collector.address)
        self.check_ends()

    def test_a_collector_that_is_none(self):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            s.listen()

            def babble():
                while True:
                    try:
                        connection = s.accept()[0]
                        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"\0" * 100000)
                        connection.close()
                    except OSError:
                        return
            threading.Thread(target=babble, daemon=True).start()
            self.check_harmless("127.0.0.1:%d" % s.getsockname()[1])
            self.check_ends()
            s.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    unittest.main()
