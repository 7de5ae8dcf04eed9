#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readers that cut a stream at blank lines and take what stands behind `data: ` for JSON can read streams
without ids, which a header, a member of the request or a flag of the gateway asks for."""
import http.client
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from routes import ROUTES, FleetTest, ask, fleet, post  # noqa: E402

HEADER = {"X-Event-Ids": "false"}
CHAT = "/v1/chat/completions"


def read_naively(address, path, members, headers=None):
    """The objects of a stream, as load generators read them; ValueError where they fail."""
    connection = http.client.HTTPConnection(address, timeout=120)
    try:
        response = ask(connection, path, {**members, "stream": True}, headers)
        objects = []
        for message in response.read().decode().strip().split("\n\n"):
            text = message.removeprefix("data: ")
            if text != "[DONE]" and not text.startswith(":"):
                objects.append(json.loads(text))
        return objects
    finally:
        connection.close()


def text_of(objects):
    return "".join(choice["delta"].get("content", "") if "delta" in choice else choice["text"]
                   for item in objects for choice in item.get("choices", []))


class NaiveReadersTest(FleetTest):
    NUM_WORKERS = 1

    def test_ids_are_no_json(self):
        with self.assertRaises(ValueError):
            read_naively(self.addresses[0], CHAT, ROUTES[CHAT])

    def test_each_choice_of_the_request_reads_the_same_text(self):
        for path in (CHAT, "/v1/completions"):
            members = {**ROUTES[path], "seed": 7}
            whole = json.loads(post(self.addresses[0], path, members).body)["choices"][0]
            expected = whole["message"]["content"] if "message" in whole else whole["text"]
            self.assertTrue(expected)
            by_header = read_naively(self.addresses[0], path, members, HEADER)
            # As a load generator adds members of its own.
            more = {"stream_options": {"include_usage": True, "include_event_ids": False}}
            by_member = read_naively(self.addresses[1], path, {**members, **more})
            self.assertEqual(text_of(by_header), expected)
            self.assertEqual(text_of(by_member), expected)
            self.assertEqual(by_member[-1]["usage"]["total_tokens"],
                             by_member[-1]["usage"]["prompt_tokens"] + by_member[-1]["usage"]["completion_tokens"])

    def test_no_api_has_ids_then(self):
        for path, members in ROUTES.items():
            reply = post(self.addresses[0], path, {**members, "stream": True}, HEADER)
            self.assertEqual(reply.status, 200, reply.body)
            self.assertNotIn(b"\nid: ", reply.body, path)
            self.assertIn(b"\nid: ", post(self.addresses[0], path, {**members, "stream": True}).body, path)

    def test_a_gateway_may_leave_them_out_for_all(self):
        gateway = self.start_gateway(f"--token_file={self.token}", "--http_event_ids=false")
        try:
            fleet.Client(gateway.address).wait_for_model(num_workers=self.NUM_WORKERS)
            self.assertTrue(text_of(read_naively(gateway.http_address, CHAT, ROUTES[CHAT])))
            wanted = post(gateway.http_address, CHAT, {**ROUTES[CHAT], "stream": True}, {"X-Event-Ids": "true"})
            self.assertIn(b"\nid: ", wanted.body)
        finally:
            gateway.kill()


if __name__ == "__main__":
    unittest.main()
