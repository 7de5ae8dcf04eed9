#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP streams that are cut at random bytes, while workers and gateways are killed, go on behind the last
event at any gateway: the events joined are those of an undisturbed run, none twice."""
import json
import pathlib
import random
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from events import EventSource, joined  # noqa: E402
from routes import ROUTES, FleetTest, fleet, post  # noqa: E402
import proxies  # noqa: E402

NUM_STREAMS = 32
MAX_TRIES = 12


def post_stream(address, path, members, headers):
    return post(address, path, {**members, "stream": True}, headers)


class StreamsTest(FleetTest):
    def undisturbed(self, path, members, headers):
        source = EventSource(path, members, headers)
        source.read(self.addresses[0])
        self.assertTrue(source.is_complete)
        return source

    def test_streams_go_on_behind_their_last_event(self):
        chance = random.Random(36)
        num_cuts, num_resumed = 0, 0
        for number in range(NUM_STREAMS):
            path, members = list(ROUTES.items())[number % len(ROUTES)]
            headers = {"Idempotency-Key": f"stream {number}"}
            reference = self.undisturbed(path, members, headers)
            source = EventSource(path, members, headers)
            if number % 8 == 3:
                self.kill_worker(number // 8 % self.NUM_WORKERS)
            if number % 16 == 5:
                self.kill_gateway(number // 16 % 2)
                self.wait_for_workers()
            for attempt in range(MAX_TRIES):
                limits = [chance.randrange(300, 4000)] if attempt < MAX_TRIES - 1 else []
                proxy = proxies.BreakingProxy(chance.choice(self.addresses), limits)
                before = len(source.events)
                source.read(proxy.address)
                proxy.close()
                num_resumed += before > 0 and len(source.events) > before
                if source.is_complete:
                    break
            self.assertTrue(source.is_complete)
            num_cuts += source.num_cuts
            ids = [event["id"] for event in source.events]
            self.assertEqual(len(ids), len(set(ids)), "an event came twice")
            self.assertEqual(joined(source.events), joined(reference.events), path)
        self.assertGreater(num_cuts, NUM_STREAMS)
        self.assertGreater(num_resumed, NUM_STREAMS // 2)
        self.wait_for_workers()

    def test_each_event_of_a_stream_is_a_place_to_go_on(self):
        for path, members in ROUTES.items():
            greedy = {**members, "temperature": 0}
            for length in ("max_tokens", "max_output_tokens"):
                if length in greedy:
                    greedy[length] = 12
            reference = self.undisturbed(path, greedy, {})
            for i, event in enumerate(reference.events):
                source = EventSource(path, greedy, {})
                source.events, source.last_id = list(reference.events[:i + 1]), event["id"]
                source.read(self.addresses[i % 2])
                self.assertTrue(source.is_complete)
                self.assertEqual(joined(source.events), joined(reference.events), f"{path} {i}")
            self.assertEqual(len(source.events), len(reference.events))

    def test_behind_the_last_event_there_is_nothing(self):
        for path, members in ROUTES.items():
            reference = self.undisturbed(path, members, {})
            reply = post_stream(self.addresses[1], path, members,
                                {"Last-Event-ID": reference.events[-1]["id"]})
            self.assertEqual((reply.status, reply.body), (204, b""))

    def test_a_gateway_that_has_heard_of_no_worker_waits_for_one(self):
        path, members = "/v1/completions", {**ROUTES["/v1/completions"], "temperature": 0}
        reference = self.undisturbed(path, members, {})
        middle = len(reference.events) // 2
        source = EventSource(path, members, {})
        source.events, source.last_id = list(reference.events[:middle]), reference.events[middle - 1]["id"]
        port = fleet.free_port()
        gateway = fleet.start_gateway([f"127.0.0.1:{port}"], f"--token_file={self.token}")
        reader = threading.Thread(target=source.read, args=(gateway.http_address,))
        reader.start()
        fleet.wait_until(
            lambda: fleet.scrape(gateway.metrics_address)["continuo_gateway_open_streams"] == 1,
            "the request is there")
        worker = self.start_worker(port)
        reader.join()
        self.assertTrue(source.is_complete)
        self.assertEqual(joined(source.events), joined(reference.events))
        for program in (gateway, worker):
            program.kill()

    def test_wrong_cursors_are_refused(self):
        path, members = "/v1/completions", {**ROUTES["/v1/completions"], "ignore_eos": True}
        events = self.undisturbed(path, members, {}).events  # few, where tokens came together
        middle = events[len(events) // 2]["id"]
        flipped = middle[:30] + ("A" if middle[30] != "A" else "B") + middle[31:]
        for cursor, status, code in ((flipped, 400, "invalid_cursor"), ("nonsense", 400, "invalid_cursor"),
                                     (middle[:-4], 400, "invalid_cursor")):
            reply = post_stream(self.addresses[0], path, members, {"Last-Event-ID": cursor})
            self.assertEqual((reply.status, reply.code()), (status, code), cursor)
        for other_path, other in ((path, {**members, "max_tokens": 61}),
                                  ("/v1/chat/completions", ROUTES["/v1/chat/completions"])):
            reply = post_stream(self.addresses[0], other_path, other, {"Last-Event-ID": middle})
            self.assertEqual((reply.status, reply.code()), (409, "cursor_of_another_request"))
        keyed = post_stream(self.addresses[0], path, members,
                            {"Last-Event-ID": middle, "Idempotency-Key": "another"})
        self.assertEqual((keyed.status, keyed.code()), (409, "cursor_of_another_request"))
        # A fleet with another secret.
        stranger = self.start_gateway("--log_level=info")
        fleet.Client(stranger.address).wait_for_model(num_workers=self.NUM_WORKERS)
        reply = post_stream(stranger.http_address, path, members, {"Last-Event-ID": middle})
        stranger.kill()
        self.assertEqual((reply.status, reply.code()), (400, "invalid_cursor"))
        # In Anthropic's form.
        reply = post_stream(self.addresses[0], "/v1/messages", ROUTES["/v1/messages"],
                            {"Last-Event-ID": "nonsense"})
        self.assertEqual((reply.status, json.loads(reply.body)["error"]["type"]),
                         (400, "invalid_request_error"))


class OtherWeightsTest(FleetTest):
    NUM_WORKERS = 1

    def test_another_model_gives_no_other_bytes(self):
        path, members = "/v1/completions", ROUTES["/v1/completions"]
        key = {"Idempotency-Key": "weights"}
        source = EventSource(path, members, key)
        source.read(self.addresses[0])
        before = post(self.addresses[0], path, members, {"Idempotency-Key": "weights, whole"})
        self.workers[0].kill()
        self.workers[0] = self.start_worker(self.ports[0], "--weights=int8")
        self.workers[0].wait_until_listening()
        other = before.headers["x-fingerprint"]

        def is_known(address):
            reply = post(address, path, members, {"Idempotency-Key": "weights, whole"})
            told = reply.headers["x-fingerprint-before"]
            self.assertIn(told, (None, other))
            tells.append(told)
            return reply.headers["x-fingerprint"] not in (None, other)
        tells = []
        for address in self.addresses:
            fleet.wait_until(lambda: is_known(address), "the other weights")
        self.assertIn(other, tells, "the gateway that had the first answer remembers it")
        for address in self.addresses:
            reply = post_stream(address, path, members, {**key, "Last-Event-ID": source.events[0]["id"]})
            self.assertEqual((reply.status, reply.code()), (409, "model_changed"))
        # A key still has an answer, which says that it is another one.
        source = EventSource(path, members, key)
        source.read(self.addresses[0])
        self.assertTrue(source.is_complete)


if __name__ == "__main__":
    unittest.main()
