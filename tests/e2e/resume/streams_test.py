#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""HTTP streams that are cut at random bytes, while workers and gateways are killed, go on behind the last
event at any gateway: the events joined are those of an undisturbed run, none twice."""
import http.client
import json
import pathlib
import random
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from routes import ROUTES, FleetTest, ask, fleet, post  # noqa: E402
import proxies  # noqa: E402

NUM_STREAMS = 32
MAX_TRIES = 12


def post_stream(address, path, members, headers):
    return post(address, path, {**members, "stream": True}, headers)


class EventSource:
    """What a browser's does with a POST: keeps whole events, and the id of the last one."""

    def __init__(self, path, members, headers):
        self.path, self.members, self.headers = path, members, headers
        self.events, self.last_id, self.is_complete, self.num_cuts = [], "", False, 0

    def read(self, address):
        """One connection, to its end or its cut. The status that is no stream is an error."""
        connection = http.client.HTTPConnection(address, timeout=120)
        headers = dict(self.headers)
        if self.last_id:
            headers["Last-Event-ID"] = self.last_id
        try:
            response = ask(connection, self.path, {**self.members, "stream": True}, headers)
            if response.status == 204:
                self.is_complete = True
                return
            if response.status != 200:
                raise AssertionError(f"{response.status}: {response.read()}")
            self._take(response)
        except (http.client.HTTPException, OSError):
            self.num_cuts += 1
        finally:
            connection.close()

    def _take(self, response):
        rest = b""
        # Lines would end quietly where the connection does between two chunks.
        while piece := response.read1(4096):
            *blocks, rest = (rest + piece).split(b"\n\n")
            for block in blocks:
                event = dict(line.split(": ", 1) for line in block.decode().split("\n"))
                if "data" in event:
                    if "id" not in event:
                        raise AssertionError(f"without an id: {event}")
                    self.last_id = event["id"]
                    self.events.append(event)
        self.is_complete = True


def joined(events):
    """What the events say, however tokens came together in them."""
    texts, whole = {}, []
    for number, event in enumerate(events):
        if event["data"] == "[DONE]":
            whole.append("done")
            continue
        data = json.loads(event["data"])
        if "sequence_number" in data and data.pop("sequence_number") != number:
            raise AssertionError(f"event {number} is {event}")
        for name in ("usage", "created_at", "completed_at", "created"):
            data.pop(name, None)
        for choice in data.get("choices", []):
            kept = texts.setdefault(choice["index"], [])
            kept.append(choice["text"] if "text" in choice else choice["delta"].get("content", ""))
            if choice["finish_reason"]:
                whole.append(choice["finish_reason"])
        delta = data.get("delta")
        if data.get("type", "").endswith("delta") and data["type"] != "message_delta":
            texts.setdefault(data.get("output_index", data.get("index")), []).append(
                delta if isinstance(delta, str) else delta.get("text", ""))
        elif "choices" not in data:
            for part in (data.get("response"), data.get("message")):
                if part:
                    part.pop("usage", None)
            whole.append(data)
    return {index: "".join(pieces) for index, pieces in texts.items()}, whole


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
            for attempt in range(MAX_TRIES):
                limits = [chance.randrange(300, 6000)] if attempt < MAX_TRIES - 1 else []
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

    @classmethod
    def kill_gateway(cls, i):
        cls.gateways[i].kill()
        cls.gateways[i] = cls.start_gateway()
        cls.addresses[i] = cls.gateways[i].http_address
        cls.wait_for_workers()

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

    def test_wrong_cursors_are_refused(self):
        path, members = "/v1/completions", {**ROUTES["/v1/completions"], "ignore_eos": True}
        middle = self.undisturbed(path, members, {}).events[5]["id"]
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
            self.assertIn(reply.status, (400, 409))
            self.assertEqual(reply.code(), "model_changed")
        # A key still has an answer, which says that it is another one.
        source = EventSource(path, members, key)
        source.read(self.addresses[0])
        self.assertTrue(source.is_complete)


if __name__ == "__main__":
    unittest.main()
