#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a worker answers does not depend on speculation: text, ids, log-probabilities, usage."""
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
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
        plain, drafting = self.start("--speculation=off"), self.start("--speculation=lookup")
        checked, accepted = self.compare(plain, drafting)
        print(f"lookup: {checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreater(accepted, 100)
        self.assertGreater(checked, accepted)

    def test_answers_do_not_depend_on_a_draft_model(self):
        with tempfile.TemporaryDirectory() as folder:
            # Half of the layers; the tensors of the others are not read.
            draft = pathlib.Path(folder) / "draft"
            shutil.copytree(fleet.DEMO_MODEL, draft)
            config = json.loads((draft / "config.json").read_text())
            config["num_hidden_layers"] //= 2
            (draft / "config.json").write_text(json.dumps(config))
            plain = self.start("--speculation=off")
            drafting = self.start("--speculation=draft", f"--draft_model={draft}")
            checked, accepted = self.compare(plain, drafting)
        # How many depends on how long steps take beside everything else that runs here.
        print(f"draft model: {checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreaterEqual(checked, accepted)

    def test_a_draft_model_of_another_tokenizer_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            draft = pathlib.Path(folder) / "draft"
            shutil.copytree(fleet.DEMO_MODEL, draft)
            tokenizer = json.loads((draft / "tokenizer.json").read_text())
            tokenizer["normalizer"] = {"type": "Lowercase"}
            (draft / "tokenizer.json").write_text(json.dumps(tokenizer))
            worker = self.start("--speculation=draft", f"--draft_model={draft}", wait=False)
            record = worker.wait_for_log("the worker ends")
        self.assertIn("the draft model's tokenizer", record["reason"])

    def start(self, *flags, **keywords):
        return fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_blocks=512", *flags,
                                  **keywords)

    def compare(self, plain, drafting):
        """Drafts checked and accepted by `drafting`, after all requests."""
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
        counts = drafts(drafting)
        for worker in (plain, drafting):
            self.assertEqual(worker.terminate(), 0)
        return counts


if __name__ == "__main__":
    unittest.main()
