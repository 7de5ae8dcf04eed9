#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Health, reflection, metrics, drain, abort, cancel and deadlines of real gateways and workers."""
import concurrent.futures
import json
import pathlib
import signal
import socket
import struct
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import grpc, pb, worker_pb  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (  # noqa: E402
    ProtoReflectionDescriptorDatabase)

WORKER_SERIES = [
    "continuo_running_requests", "continuo_waiting_requests", "continuo_waiting_prompt_tokens",
    "continuo_kv_blocks_used", "continuo_kv_blocks_cached", "continuo_kv_blocks_total",
    "continuo_kv_blocks_unaccounted", "continuo_step_seconds_count", "continuo_step_rows_count",
    "continuo_prompt_tokens_total", "continuo_generated_tokens_total",
    "continuo_preemptions_total", "continuo_prefix_cache_queried_tokens_total",
    "continuo_prefix_cache_hit_tokens_total", "continuo_requests_total",
    "continuo_draft_tokens_total", "continuo_accepted_draft_tokens_total",
    "continuo_constrained_samples_total", "continuo_mask_seconds_count",
    "continuo_grammar_compiles_total", "continuo_grammar_refusals_total",
    "continuo_grammar_cache_hits_total", "continuo_grammar_compile_seconds_total",
    "continuo_queue_seconds_count", "continuo_time_to_first_token_seconds_count",
    "continuo_inter_token_seconds_count", "continuo_request_seconds_count", "continuo_build_info",
    "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info", "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_count", "vllm:e2e_request_latency_seconds_count",
    "vllm:request_queue_time_seconds_count", "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total", "vllm:num_preemptions_total",
    "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
    "vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_accepted_tokens_total",
]
GATEWAY_SERIES = [
    "continuo_gateway_requests_total", "continuo_gateway_open_streams",
    "continuo_gateway_queued_requests", "continuo_gateway_queued_prompt_tokens",
    "continuo_gateway_migrations_total", "continuo_gateway_migration_stall_seconds_count",
    "continuo_gateway_rejected_total", "continuo_gateway_time_to_first_token_seconds_count",
    "continuo_gateway_inter_token_seconds_count", "continuo_gateway_workers",
    "continuo_gateway_load_age_seconds", "continuo_gateway_tenant_tokens_total",
]


# A worker generates faster than its reader reads. So a test that needs a running stream uses one
# with seconds of work, a hundred times what the test needs, or one with so much work that it never
# ends here.
SOME_SECONDS, ENDLESS = 16, 128  # sequences of 900 tokens


def long_request(sequences=1, max_tokens=900):
    request = pb.GenerateRequest()
    request.text = "Mira lives in Oslo."
    request.sampling.seed = 1
    request.sampling.num_sequences = sequences
    request.stopping.max_tokens = max_tokens
    request.stopping.ignore_eos = True
    return request


def reason_of(error):
    """ErrorInfo.reason of a failed call, "" where it has none."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return info.reason
    return ""


class LifecycleTest(unittest.TestCase):
    def setUp(self):
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.kill()

    def worker(self, *flags):
        self.programs.append(fleet.start_worker(fleet.DEMO_MODEL, "--threads=1",
                                                "--kv_blocks=1024", *flags))
        return self.programs[-1]

    def gateway(self, workers, *flags):
        self.programs.append(fleet.start_gateway(workers, *flags))
        fleet.Client(self.programs[-1].address).wait_for_model(len(workers))
        return self.programs[-1]

    def start_stream(self, client, request, **keywords):
        """The call, after its first ids came, and those."""
        call = client.inference.Generate(request, timeout=60, **keywords)
        responses = []
        while not any(d.token_ids for r in responses for d in r.deltas):
            responses.append(next(call))
        return call, responses

    def health(self, program, service=""):
        stub = health_pb2_grpc.HealthStub(fleet.Client(program.address).channel)
        return stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=10).status

    def wait_until_idle(self, worker):
        """The worker's load stream tells that nothing runs and no block is in use."""
        for load in fleet.Client(worker.address).worker.WatchLoad(
                worker_pb.WatchLoadRequest(), timeout=30):
            if load.running_requests == 0 and load.used_kv_blocks == 0:
                return load

    def value(self, program, name):
        """The sum of all series of this name."""
        series = fleet.scrape(program.metrics_address)
        return sum(v for k, v in series.items() if k.split("{")[0] == name)

    def test_health_and_reflection_on_both(self):
        worker = self.worker()
        gateway = self.gateway([worker])
        name = fleet.Client(worker.address).inference.GetModel(
            pb.GetModelRequest(), timeout=10).model.name
        for program in (worker, gateway):
            for service in ("", "continuo.v1.InferenceService", name):
                self.assertEqual(self.health(program, service),
                                 health_pb2.HealthCheckResponse.SERVING, service)
            services = ProtoReflectionDescriptorDatabase(
                fleet.Client(program.address).channel).get_services()
            self.assertIn("continuo.v1.InferenceService", services)
        self.assertIn("continuo.v1.WorkerService", ProtoReflectionDescriptorDatabase(
            fleet.Client(worker.address).channel).get_services())

    def test_series_exist_from_the_start_and_count(self):
        worker = self.worker()
        gateway = self.gateway([worker])
        for program, names in ((worker, WORKER_SERIES), (gateway, GATEWAY_SERIES)):
            series = {s.split("{")[0] for s in fleet.scrape(program.metrics_address)}
            self.assertEqual([n for n in names if n not in series], [])
        fleet.Client(gateway.address).generate(long_request(max_tokens=20))
        self.wait_until_idle(worker)
        self.assertEqual(self.value(worker, "continuo_generated_tokens_total"), 20)
        self.assertEqual(self.value(worker, "continuo_kv_blocks_unaccounted"), 0)
        self.assertEqual(self.value(worker, "continuo_requests_total"), 1)
        self.assertEqual(self.value(gateway, "continuo_gateway_open_streams"), 0)
        of_gateway = fleet.scrape(gateway.metrics_address)
        self.assertEqual(sum(v for k, v in of_gateway.items() if k.startswith(
            "continuo_gateway_requests_total") and 'code="OK"' in k), 1)

    def test_sigterm_of_a_worker_flushes_then_ends_with_draining(self):
        worker = self.worker("--drain_grace=0s")
        client = fleet.Client(worker.address)
        undisturbed = client.generate(long_request(ENDLESS, max_tokens=50))
        call, responses = self.start_stream(client, long_request(ENDLESS))
        worker.signal(signal.SIGTERM)
        with self.assertRaises(grpc.RpcError) as raised:
            for response in call:
                responses.append(response)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(reason_of(raised.exception), "DRAINING")
        for index, ids in fleet.Answer(responses).ids.items():
            expected = undisturbed.ids[index]
            self.assertEqual(ids[:len(expected)], expected[:len(ids)])
        self.assertEqual(worker.process.wait(30), 0)

    def test_sigterm_of_a_worker_does_not_wait_for_a_reader_who_does_not_read(self):
        worker = self.worker("--drain_grace=0s")
        channel = grpc.insecure_channel(worker.address, options=[
            ("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0)])
        request = long_request(sequences=8)
        request.output.logprobs = 20
        call = fleet.pb_grpc.InferenceServiceStub(channel).Generate(request)
        # Some megabytes are generated and wait for a window of 64 KiB.
        for load in fleet.Client(worker.address).worker.WatchLoad(
                worker_pb.WatchLoadRequest(), timeout=60):
            if load.steps > 0 and load.running_requests == 0:
                break
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.process.wait(30), 0)
        with self.assertRaises(grpc.RpcError) as raised:
            list(call)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        channel.close()

    def test_more_ranks_than_threads_are_told(self):
        # Each rank has a thread of its own, so four compute although the flag says two.
        def warnings(*flags):
            worker = self.worker(*flags)
            records = [json.loads(line) for line in worker.lines if line.startswith("{")]
            return [r for r in records if r["severity"] == "WARNING"]
        self.assertEqual(warnings("--threads=4", "--tensor_parallel=4"), [])
        told = warnings("--threads=2", "--tensor_parallel=4")
        self.assertEqual([(r["threads"], r["computing"], r["ranks"]) for r in told], [(2, 4, 4)])

    def test_streams_of_a_connection_are_bounded(self):
        worker = self.worker("--max_streams_per_connection=17")
        host, port = worker.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            # The preface and empty SETTINGS; the server answers with its own SETTINGS first.
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
                               + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
            with connection.makefile("rb") as stream:
                head = stream.read(9)
                payload = stream.read(int.from_bytes(head[:3], "big"))
        self.assertEqual(head[3], 4)
        settings = dict(struct.iter_unpack(">HI", payload))
        self.assertEqual(settings[3], 17)  # SETTINGS_MAX_CONCURRENT_STREAMS

    def test_drain_migrates_streams_to_another_worker(self):
        workers = [self.worker(), self.worker()]
        gateway = self.gateway(workers)
        client = fleet.Client(gateway.address)
        request = long_request(SOME_SECONDS)
        undisturbed = fleet.Client(workers[0].address).generate(request).comparable()
        call, responses = self.start_stream(client, request)
        first = next(w for w in workers if next(iter(fleet.Client(w.address).worker.WatchLoad(
            worker_pb.WatchLoadRequest(), timeout=10))).running_requests)
        drain = worker_pb.DrainRequest()
        drain.grace.FromMilliseconds(0)
        fleet.Client(first.address).worker.Drain(drain, timeout=10)
        self.assertEqual(self.health(first), health_pb2.HealthCheckResponse.NOT_SERVING)
        responses.extend(call)
        answer = fleet.Answer(responses)
        self.assertEqual(answer.comparable(), undisturbed)
        self.assertEqual(answer.summary.migrations, 1)
        with self.assertRaises(grpc.RpcError) as raised:
            fleet.Client(first.address).generate(long_request())
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(reason_of(raised.exception), "DRAINING")

    def test_abort_ends_one_request(self):
        worker = self.worker()
        gateway = self.gateway([worker])
        client = fleet.Client(gateway.address)
        request = long_request(ENDLESS)
        request.request_id = "to-be-aborted"
        call, _ = self.start_stream(client, request)
        abort = worker_pb.AbortRequest(request_id="to-be-aborted")
        self.assertTrue(fleet.Client(worker.address).worker.Abort(abort, timeout=10).aborted)
        with self.assertRaises(grpc.RpcError) as raised:
            list(call)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.ABORTED)
        self.assertFalse(fleet.Client(worker.address).worker.Abort(abort, timeout=10).aborted)
        self.wait_until_idle(worker)

    def test_duplicate_id_is_refused_and_a_continuation_replaces(self):
        worker = self.worker()
        client = fleet.Client(self.gateway([worker]).address)
        request = long_request(SOME_SECONDS)
        request.request_id = "twice"
        undisturbed = client.generate(request)
        call, responses = self.start_stream(client, request)
        with self.assertRaises(grpc.RpcError) as raised:
            client.generate(request)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.ALREADY_EXISTS)
        for response in responses:
            request.continuation.received.MergeFrom(response)
        continued = client.generate(request)
        with self.assertRaises(grpc.RpcError) as raised:
            list(call)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.ABORTED)
        whole = fleet.Answer(responses + continued.responses)
        self.assertEqual(whole.ids, undisturbed.ids)
        self.assertEqual(whole.text, undisturbed.text)

    def test_cancel_and_deadline_free_the_blocks(self):
        worker = self.worker()
        client = fleet.Client(self.gateway([worker]).address)
        call, _ = self.start_stream(client, long_request(ENDLESS))
        call.cancel()
        self.wait_until_idle(worker)
        with self.assertRaises(grpc.RpcError) as raised:
            client.generate(long_request(ENDLESS), timeout=0.15)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.wait_until_idle(worker)
        generated = self.value(worker, "continuo_generated_tokens_total")
        self.assertLess(generated, ENDLESS * 900)

    def test_sigterm_of_a_gateway_lets_streams_finish(self):
        worker = self.worker()
        gateway = self.gateway([worker])
        client = fleet.Client(gateway.address)
        call, responses = self.start_stream(client, long_request(SOME_SECONDS))
        gateway.signal(signal.SIGTERM)
        responses.extend(call)
        self.assertIsNotNone(fleet.Answer(responses).summary)
        self.assertEqual(gateway.process.wait(30), 0)

    def test_sigterm_of_a_gateway_with_a_delay_ends_nothing_until_the_second(self):
        gateway = self.gateway([self.worker()], "--drain_delay=1h")
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        gateway.signal(signal.SIGTERM)
        gateway.wait_for_log("about to drain")
        client.generate(long_request(10))
        gateway.signal(signal.SIGTERM)
        self.assertEqual(gateway.process.wait(30), 0)

    def test_gateway_whose_grace_ends_tells_clients_to_continue(self):
        worker = self.worker()
        request = long_request(SOME_SECONDS)
        undisturbed = fleet.Client(worker.address).generate(request).comparable()
        first = self.gateway([worker], "--drain_grace=0s")
        second = self.gateway([worker])
        call, responses = self.start_stream(fleet.Client(first.address), request)
        first.signal(signal.SIGTERM)
        with self.assertRaises(grpc.RpcError) as raised:
            for response in call:
                responses.append(response)
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(reason_of(raised.exception), "CONTINUE")
        request.continuation.SetInParent()
        for response in responses:
            request.continuation.received.MergeFrom(response)
        responses.extend(fleet.Client(second.address).generate(request).responses)
        self.assertEqual(fleet.Answer(responses).comparable(), undisturbed)

    def test_a_gateway_that_ends_cancels_no_call(self):
        gateway = self.gateway([self.worker()])
        begun = threading.Semaphore(0)

        def call_until_it_is_gone():
            client, codes, reasons = fleet.Client(gateway.address), set(), set()
            client.wait_for_model()
            begun.release()
            while True:
                try:
                    client.inference.ListModels(pb.ListModelsRequest(), timeout=60)
                except grpc.RpcError as error:
                    codes.add(error.code())
                    if "failed to connect" in error.details():
                        return codes, reasons
                    reasons.add(reason_of(error))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            clients = [pool.submit(call_until_it_is_gone) for _ in range(8)]
            for _ in clients:
                begun.acquire()
            gateway.signal(signal.SIGTERM)
            for client in clients:
                codes, reasons = client.result()
                self.assertEqual(codes, {grpc.StatusCode.UNAVAILABLE})
                self.assertIn("CONTINUE", reasons)
        self.assertEqual(gateway.process.wait(30), 0)

    def test_late_worker_serves_what_waited(self):
        port = fleet.free_port()
        gateway = fleet.start_gateway(f"127.0.0.1:{port}")
        self.programs.append(gateway)
        client = fleet.Client(gateway.address)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(client.generate, long_request(max_tokens=5))
            self.programs.append(fleet.start_worker(fleet.DEMO_MODEL, port=port))
            self.assertEqual(len(waiting.result().ids[0]), 5)

    def test_no_worker_is_unavailable(self):
        gateway = fleet.start_gateway(f"127.0.0.1:{fleet.free_port()}", "--no_worker_wait=100ms")
        self.programs.append(gateway)
        with self.assertRaises(grpc.RpcError) as raised:
            fleet.Client(gateway.address).generate(long_request())
        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertEqual(reason_of(raised.exception), "NO_WORKER")
        self.assertEqual(self.health(gateway), health_pb2.HealthCheckResponse.SERVING)


if __name__ == "__main__":
    unittest.main(verbosity=2)
