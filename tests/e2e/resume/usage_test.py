#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The ledger of --usage_log: a line for each call whatever its end, whose sums are those of the metrics and
of the answers."""
import http.client
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from routes import MODEL, ROUTES, FleetTest, fleet, post  # noqa: E402
from fleet import grpc, pb  # noqa: E402

KEY = "0123456789abcdef0123"


class UsageTest(FleetTest):
    def setUp(self):
        folder = pathlib.Path(self.folder.name)
        keys = folder / "keys"
        keys.write_text(f"somebody {KEY}\n")
        self.ledger = folder / self.id()
        self.gateway = self.start_gateway(f"--token_file={self.token}", f"--api_keys_file={keys}",
                                          f"--usage_log={self.ledger}")
        self.client = fleet.Client(self.gateway.address)
        fleet.wait_until(lambda: self.models() == [self.NUM_WORKERS], "all workers")

    def models(self):
        models = self.client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True,
                                                  metadata=self.metadata()).models
        return [model.num_workers for model in models]

    @staticmethod
    def metadata(*more):
        return (("authorization", "Bearer " + KEY), *more)

    def tearDown(self):
        self.gateway.kill()

    def lines(self, number):
        fleet.wait_until(lambda: self.ledger.read_text().count("\n") >= number, f"{number} lines")
        lines = [json.loads(line) for line in self.ledger.read_text().splitlines()]
        self.assertEqual(len(lines), number)
        return lines

    def post(self, path, members, headers=None):
        return post(self.gateway.http_address, path, members,
                    {"Authorization": "Bearer " + KEY, **(headers or {})})

    def expect_sums_of_the_metrics(self, lines):
        series = fleet.scrape(self.gateway.metrics_address)
        for kind, member in (("prompt", "prompt_tokens"), ("completion", "delivered_tokens"),
                             ("generated", "generated_tokens"), ("cached", "cached_tokens"),
                             ("reasoning", "reasoning_tokens")):
            name = f'continuo_gateway_tenant_tokens_total{{kind="{kind}",tenant="somebody"}}'
            other = f'continuo_gateway_tenant_tokens_total{{tenant="somebody",kind="{kind}"}}'
            self.assertEqual(series.get(name, series.get(other)), sum(line[member] for line in lines))

    def test_each_end_leaves_a_line(self):
        # Finished, on each route.
        usages = []
        for path, members in ROUTES.items():
            reply = self.post(path, members, {"Idempotency-Key": path})
            self.assertEqual(reply.status, 200)
            usages.append(json.loads(reply.body)["usage"])
        finished = self.lines(len(ROUTES))
        for line, usage in zip(finished, usages):
            self.assertEqual((line["outcome"], line["code"], line["tenant"], line["model"]),
                             ("finished", "OK", "somebody", MODEL))
            self.assertEqual(line["prompt_tokens"], usage.get("prompt_tokens", usage.get("input_tokens")))
            completion = usage.get("completion_tokens", usage.get("output_tokens"))
            self.assertEqual(line["generated_tokens"], completion)
            self.assertEqual(line["delivered_tokens"], completion)
            self.assertFalse(line["prompt_estimated"])
            self.assertTrue(line["again"], "a key may have been used before")
            self.assertEqual(len(line["key"]), 8)
            self.assertGreater(line["seconds"], 0)
            self.assertNotEqual(line["fingerprint"], "")
        # Again, by the same key.
        self.post("/v1/completions", ROUTES["/v1/completions"], {"Idempotency-Key": "/v1/completions"})
        again = self.lines(len(ROUTES) + 1)[-1]
        self.assertEqual(again["request_id"], finished[1]["request_id"])
        self.assertNotEqual(again["call"], finished[1]["call"])
        # Cancelled: the client leaves a stream.
        long = {"prompt": "Mira", "max_tokens": 1000, "ignore_eos": True, "stream": True}
        connection = http.client.HTTPConnection(self.gateway.http_address, timeout=60)
        connection.request("POST", "/v1/completions", json.dumps({"model": MODEL, **long}),
                           {"Authorization": "Bearer " + KEY})
        connection.getresponse().readline()
        connection.close()
        cancelled = self.lines(len(ROUTES) + 2)[-1]
        self.assertEqual((cancelled["outcome"], cancelled["code"]), ("cancelled", "CANCELLED"))
        self.assertGreater(cancelled["delivered_tokens"], 0)
        self.assertFalse(cancelled["again"])
        # Expired, over gRPC.
        request = pb.GenerateRequest(model=MODEL, text="Mira")
        request.stopping.ignore_eos, request.stopping.max_tokens = True, 1000
        with self.assertRaises(grpc.RpcError):
            self.client.generate(request, timeout=0.05, metadata=self.metadata())
        lines = self.lines(len(ROUTES) + 3)
        self.assertIn(lines[-1]["outcome"], ("expired", "cancelled"))
        self.expect_sums_of_the_metrics(lines)
        calls = [line["call"] for line in lines]
        self.assertEqual(len(calls), len(set(calls)))
        # A request that no worker took used nothing, and one that was rejected leaves no line.
        self.assertEqual(self.post("/v1/completions", {"prompt": "x", "max_tokens": -7}).status, 400)
        self.assertEqual(self.post("/v1/completions", {"prompt": "x", "model": "none"}).status, 404)
        failed = self.lines(len(lines) + 1)[-1]
        self.assertEqual((failed["outcome"], failed["code"]), ("failed", "NOT_FOUND"))
        self.assertEqual((failed["prompt_tokens"], failed["delivered_tokens"]), (0, 0))

    def test_a_move_is_one_line(self):
        request = pb.GenerateRequest(model=MODEL, text="Mira")
        request.stopping.ignore_eos, request.stopping.max_tokens = True, 500
        killed = []

        def kill(response):
            if response.HasField("accepted") and not killed:
                # By its name: it may have ended before its metrics are read.
                killed.append(next(i for i, port in enumerate(self.ports)
                                   if response.accepted.worker.endswith(f":{port}")))
                self.kill_worker(killed[0])
        answer = self.client.generate(request, metadata=self.metadata(), on_response=kill)
        self.assertEqual(len(killed), 1)
        (line,) = self.lines(1)
        self.assertEqual((line["outcome"], line["generated_tokens"]), ("finished", 500))
        self.assertEqual(line["delivered_tokens"], sum(map(len, answer.ids.values())))
        self.assertEqual(line["migrations"], 1)
        self.expect_sums_of_the_metrics([line])
        for worker in self.workers:
            if worker.address is None:
                worker.wait_until_listening()


if __name__ == "__main__":
    unittest.main()
