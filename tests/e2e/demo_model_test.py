#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The demo model answers held-out questions from facts in the prompt, and not without them."""
import concurrent.futures
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402


class DemoModelTest(unittest.TestCase):
    def score(self, client, questions, key):
        def right(question):
            request = pb.GenerateRequest()
            for message in question[key]:
                request.conversation.messages.add(**message)
            request.sampling.temperature = 0
            request.stopping.max_tokens = 100
            request.output.collect = True
            answer = client.generate(request)
            return answer.text.get(0, "").strip() in question["accept"]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            return sum(pool.map(right, questions))

    def test_held_out_questions(self):
        lines = (fleet.DEMO_MODEL / "heldout.jsonl").read_text().splitlines()
        questions = [json.loads(line) for line in lines]
        self.assertEqual(len(questions), 200)
        worker = fleet.start_worker()
        gateway = fleet.start_gateway([worker])
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        with_facts = self.score(client, questions, "messages")
        without = self.score(client, questions, "messages_without_facts")
        print(f"{with_facts} of 200 right with the facts, {without} without")
        self.assertGreaterEqual(with_facts, 190)
        self.assertLessEqual(without, 60)
        self.assertEqual(gateway.terminate(), 0)
        self.assertEqual(worker.terminate(), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
