#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a worker answers does not depend on speculation: text, ids, log-probabilities, usage."""
import concurrent.futures
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from traffic import NUM_KINDS, make_request  # noqa: E402


def repetitive(number):
    """Requests whose answers follow what stands in the prompt, as far as a small model can."""
    request = pb.GenerateRequest(request_id=f"repeats-{number}")
    request.text = "one two three four five six seven. " * (4 + number % 5)
    request.sampling.temperature = (0, 0.3, 1.0)[number % 3]
    request.sampling.seed = number
    request.stopping.max_tokens = 60 + number
    request.stopping.ignore_eos = number % 2 == 0
    if number % 4 == 1:
        request.sampling.repetition_penalty = 1.1
    if number % 5 == 3:
        request.stopping.strings.append("five")
    if number % 7 == 4:
        request.sampling.num_sequences = 3
    return request


class SpeculationTest(unittest.TestCase):
    def test_answers_are_those_of_a_worker_without(self):
        flags = ("--threads=1", "--kv_blocks=512")
        plain = fleet.start_worker(fleet.DEMO_MODEL, "--speculation=off", *flags)
        drafting = fleet.start_worker(fleet.DEMO_MODEL, "--speculation=lookup", *flags)
        clients = [fleet.Client(worker.address) for worker in (plain, drafting)]
        for client in clients:
            client.wait_for_model()
        requests = [repetitive(i) for i in range(24)]
        requests += [make_request(i, chat=False) for i in range(NUM_KINDS)]
        expected = [clients[0].generate(request).comparable() for request in requests]
        for request, answer in zip(requests, expected):  # alone: the most drafts
            self.assertEqual(clients[1].generate(request).comparable(), answer, request.request_id)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda r: clients[1].generate(r).comparable(), requests))
        self.assertEqual(answers, expected)

        def drafts(worker):
            page = fleet.scrape(worker.metrics_address)
            return [sum(value for series, value in page.items() if series.startswith(name))
                    for name in ("continuo_draft_tokens_total", "continuo_accepted_draft_tokens_total")]
        self.assertEqual(drafts(plain), [0, 0])
        checked, accepted = drafts(drafting)
        print(f"{checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreater(accepted, 100)
        self.assertGreater(checked, accepted)
        for worker in (plain, drafting):
            self.assertEqual(worker.terminate(), 0)


if __name__ == "__main__":
    unittest.main()
