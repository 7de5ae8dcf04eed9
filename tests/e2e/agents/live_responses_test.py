#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A response that is generated can be asked for by its id with OpenAI's SDK: its events behind any of them,
what there is, its end; at the gateway that has it. A link holds its worker back meanwhile."""
import pathlib
import sys
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1] / "e2e"), str(HERE.parent / "clients")]
import fleet  # noqa: E402
import openai  # noqa: E402
from kills import Link  # noqa: E402

MODEL = "demo-model"
# Nothing of it ends before the limit.
LONG = {"model": MODEL, "input": "Tell me a story.", "max_output_tokens": 100,
        "text": {"format": {"type": "json_schema", "name": "a",
                            "schema": {"type": "string", "minLength": 2000}}}}
HELD_TOKENS = 10


class LiveResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.go_on = threading.Event()
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
        cls.link = Link(cls.worker.address, cls.hold)
        cls.gateways = [fleet.start_gateway([cls.link.address]) for _ in range(2)]
        for gateway in cls.gateways:
            fleet.Client(gateway.address).wait_for_model(num_workers=1)
        cls.here, cls.elsewhere = (openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none",
                                                 max_retries=0) for gateway in cls.gateways)

    @classmethod
    def tearDownClass(cls):
        cls.go_on.set()
        for program in (*cls.gateways, cls.worker):
            program.kill()
        cls.link.close()

    @classmethod
    def hold(cls, num_tokens, is_end):
        # Where this test is slow, one message has all that is left.
        if num_tokens >= HELD_TOKENS or is_end:
            cls.go_on.wait(60)
        return False

    def setUp(self):
        self.go_on.clear()
        self.stream = self.here.responses.create(**LONG, stream=True)
        self.events = [next(self.stream) for _ in range(6)]
        self.id = self.events[0].response.id

    def tearDown(self):
        self.go_on.set()
        self.stream.close()

    def rest(self):
        self.go_on.set()
        self.events.extend(self.stream)
        return self.events

    def test_events_are_read_behind_any_of_them(self):
        readers = [self.here.responses.retrieve(self.id, stream=True),
                   *(self.here.responses.retrieve(self.id, stream=True, starting_after=i) for i in range(6))]
        events = [event.to_dict() for event in self.rest()]
        self.assertEqual(events[-1]["type"], "response.incomplete")
        for first, reader in enumerate(readers):
            self.assertEqual([event.to_dict() for event in reader], events[first:])

    def test_what_there_is(self):
        response = self.here.responses.retrieve(self.id)
        self.assertEqual((response.id, response.status), (self.id, "in_progress"))
        self.assertTrue(response.output_text)
        whole = self.rest()[-1].response
        self.assertTrue(whole.output_text.startswith(response.output_text))
        with self.assertRaises(openai.NotFoundError) as caught:
            self.here.responses.retrieve(self.id)
        self.assertEqual(caught.exception.code, "response_not_found")
        self.assertIn("Last-Event-ID", caught.exception.message)

    def test_a_response_is_cancelled(self):
        reader = self.here.responses.retrieve(self.id, stream=True, starting_after=len(self.events) - 1)
        response = self.here.responses.cancel(self.id)
        self.assertEqual((response.id, response.status), (self.id, "cancelled"))
        for last in (list(self.stream)[-1], list(reader)[-1]):
            self.assertEqual((last.type, last.response.error.code), ("response.failed", "aborted"))
        with self.assertRaises(openai.NotFoundError):
            self.here.responses.cancel(self.id)

    def test_a_response_is_deleted(self):
        self.here.responses.delete(self.id)
        self.assertEqual(list(self.stream)[-1].type, "response.failed")

    def test_another_gateway_says_how_to_go_on(self):
        for ask in (self.elsewhere.responses.retrieve, self.elsewhere.responses.cancel,
                    self.elsewhere.responses.delete):
            with self.assertRaises(openai.NotFoundError) as caught:
                ask(self.id)
            self.assertEqual(caught.exception.code, "response_not_found")
        # It was not the one that ends it.
        self.assertEqual(self.rest()[-1].type, "response.incomplete")


if __name__ == "__main__":
    unittest.main()
