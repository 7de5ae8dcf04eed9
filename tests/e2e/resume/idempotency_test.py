#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests with an Idempotency-Key at two gateways without a store: a retry gives the same bytes, whichever
gateway gets it, while connections are cut and workers are killed."""
import http.client
import json
import pathlib
import random
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from routes import MODEL, ROUTES, FleetTest, ask, fleet, post  # noqa: E402
from fleet import grpc, pb  # noqa: E402
import proxies  # noqa: E402


def stream(address, path, members, key):
    """An open connection whose stream has begun."""
    connection = http.client.HTTPConnection(address, timeout=120)
    response = ask(connection, path, {**members, "stream": True}, {"Idempotency-Key": key})
    response.peek()
    return connection, response


class IdempotencyTest(FleetTest):
    def test_every_gateway_gives_the_same_bytes(self):
        for path, members in ROUTES.items():
            replies = [post(address, path, members, {"Idempotency-Key": "every " + path})
                       for address in self.addresses * 2]
            for reply in replies:
                self.assertEqual(reply.status, 200)
                self.assertEqual(reply.body, replies[0].body, path)
                self.assertEqual(reply.headers["x-request-id"], replies[0].headers["x-request-id"])
                self.assertEqual(reply.headers["x-fingerprint"], replies[0].headers["x-fingerprint"])
                self.assertIsNone(reply.headers["x-fingerprint-before"])
            other = post(self.addresses[0], path, members, {"Idempotency-Key": "other " + path})
            self.assertNotEqual(other.body, replies[0].body)

    def test_prompts_and_choices_keep_their_answers(self):
        members = {"prompt": ["Mira lives", "Mira lives"], "n": 2, "max_tokens": 20, "temperature": 1}
        bodies = [post(address, "/v1/completions", members, {"Idempotency-Key": "prompts"}).body
                  for address in self.addresses]
        self.assertEqual(*bodies)
        texts = [choice["text"] for choice in json.loads(bodies[0])["choices"]]
        self.assertEqual(len(set(texts)), 4)

    def test_a_uuid_of_version_7_tells_its_time(self):
        an_hour_ago = int(time.time()) - 3600
        digits = f"{an_hour_ago * 1000 + 7:012x}"
        for key, created in ((f"{digits[:8]}-{digits[8:]}-7abc-8def-0123456789ab", an_hour_ago),
                             ("plain", None)):
            body = json.loads(post(self.addresses[0], "/v1/completions", ROUTES["/v1/completions"],
                                   {"Idempotency-Key": key}).body)
            if created is None:
                self.assertEqual(body["created"] % 86400, 0)
            else:
                self.assertEqual(body["created"], created)

    def test_another_body_is_refused(self):
        members = ROUTES["/v1/completions"]
        first = post(self.addresses[0], "/v1/completions", members, {"Idempotency-Key": "body"})
        self.assertEqual(first.status, 200)
        for path, other in (("/v1/completions", {**members, "max_tokens": 61}),
                            ("/v1/chat/completions", ROUTES["/v1/chat/completions"])):
            reply = post(self.addresses[0], path, other, {"Idempotency-Key": "body"})
            self.assertEqual((reply.status, reply.code()), (409, "idempotency_key_reused"))
        again = post(self.addresses[0], "/v1/completions", members, {"Idempotency-Key": "body"})
        self.assertEqual(again.body, first.body)

    def test_a_retry_takes_over_what_still_runs(self):
        members = {"prompt": "Mira", "temperature": 1, "max_tokens": 900, "ignore_eos": True}
        connection, first = stream(self.addresses[0], "/v1/completions", members, "over")
        events = post(self.addresses[0], "/v1/completions", {**members, "stream": True},
                      {"Idempotency-Key": "over"}).body

        def text(events):
            data = [json.loads(line[6:]) for line in events.split(b"\n") if line.startswith(b"data: {")]
            return "".join(choice["text"] for event in data for choice in event.get("choices", []))
        begun = text(first.read())
        connection.close()
        whole = text(events)
        self.assertTrue(whole.startswith(begun))
        self.assertIn(b"[DONE]", events)

    def test_grpc_has_the_key_in_its_metadata(self):
        request = pb.GenerateRequest(model=MODEL, text="Mira lives")
        request.sampling.temperature, request.stopping.max_tokens = 1, 40
        answers = [fleet.Client(gateway.address).generate(request, metadata=(("idempotency-key", "grpc"),))
                   for gateway in self.gateways]
        self.assertEqual(answers[0].comparable(), answers[1].comparable())
        for field in ("request_id", "seed", "reference_time"):
            self.assertEqual(*(getattr(answer.accepted[0], field) for answer in answers))
        request.stopping.max_tokens = 41
        with self.assertRaises(grpc.RpcError) as refused:
            fleet.Client(self.gateways[0].address).generate(request,
                                                            metadata=(("idempotency-key", "grpc"),))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.ALREADY_EXISTS)

    def test_retries_under_kills_give_one_answer_each(self):
        chance = random.Random(35)
        num_retries = 0
        for number in range(40):
            path, members = list(ROUTES.items())[number % len(ROUTES)]
            key = {"Idempotency-Key": f"kills {number}"}
            if number % 10 == 5:
                self.kill_worker(number // 10 % self.NUM_WORKERS)
            reply = None
            for attempt in range(5):
                proxy = proxies.BreakingProxy(chance.choice(self.addresses),
                                              [chance.randrange(1, 900)] if attempt < 4 else [])
                try:
                    reply = post(proxy.address, path, members, key)
                    break
                except (http.client.HTTPException, OSError):
                    num_retries += 1
                finally:
                    proxy.close()
            self.assertEqual(reply.status, 200, reply.body)
            for address in self.addresses:
                self.assertEqual(post(address, path, members, key).body, reply.body)
        self.assertGreater(num_retries, 10)
        self.wait_for_workers()


class OneWorkerTest(FleetTest):
    NUM_WORKERS = 1

    def test_another_body_is_refused_at_another_gateway_while_the_first_runs(self):
        members = {"prompt": "Mira", "temperature": 1, "max_tokens": 1000, "ignore_eos": True}
        connection, _ = stream(self.addresses[0], "/v1/completions", members, "live")
        reply = post(self.addresses[1], "/v1/completions", {**members, "max_tokens": 3},
                     {"Idempotency-Key": "live"})
        connection.close()
        self.assertEqual((reply.status, reply.code()), (409, "idempotency_key_reused"))


if __name__ == "__main__":
    unittest.main()
