#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A worker's answers do not depend on speculation: text, ids, log-probabilities, usage."""
import concurrent.futures
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / name)
                for name in ("chaos", "bench", "e2e/models")]
import fleet  # noqa: E402
import state_models  # noqa: E402
from draft_pair import drop_layers, halve_layers, let_module_agree  # noqa: E402
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


@contextlib.contextmanager
def altered_demo_model(name, alter):
    """The folder of a demo model in which alter() changed what the JSON file `name` holds."""
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        shutil.copytree(fleet.DEMO_MODEL, model)
        values = json.loads((model / name).read_text())
        alter(values)
        (model / name).write_text(json.dumps(values))
        yield model


class SpeculationTest(unittest.TestCase):
    def test_answers_are_those_of_a_worker_without(self):
        plain, drafting = self.start("--speculation=off"), self.start("--speculation=lookup", "--always_draft")
        checked, accepted = self.compare(plain, drafting)
        print(f"lookup: {checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreater(accepted, 100)
        self.assertGreater(checked, accepted)

    def test_answers_do_not_depend_on_a_draft_model(self):
        def half(config):
            config["num_hidden_layers"] //= 2

        with altered_demo_model("config.json", half) as draft:
            drop_layers(draft, json.loads((draft / "config.json").read_text())["num_hidden_layers"])
            plain = self.start("--speculation=off")
            drafting = self.start("--speculation=draft", "--always_draft", f"--draft_model={draft}")
            checked, accepted = self.compare(plain, drafting)
        print(f"draft model: {checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreater(accepted, 100)
        self.assertGreater(checked, accepted)

    def test_answers_do_not_depend_on_the_models_own_module(self):
        with tempfile.TemporaryDirectory() as folder:
            model = state_models.make("qwen3_5", pathlib.Path(folder), "--mtp", dtype="bf16")
            halve_layers(model / "model.safetensors", 0, 8)
            let_module_agree(model / "model.safetensors")
            plain = self.start("--speculation=off", model=model, wait=False)
            drafting = self.start("--speculation=mtp", "--always_draft", "--tensor_parallel=2", model=model,
                                  wait=False)
            self.assertEqual(*(worker.wait_for_log("loaded")["fingerprint"] for worker in (plain, drafting)))
            for worker in (plain, drafting):
                worker.wait_until_listening()
            checked, accepted = self.compare(plain, drafting)
        print(f"module: {checked:.0f} drafts, {accepted:.0f} accepted", flush=True)
        self.assertGreater(accepted, 100)
        self.assertGreater(checked, accepted)

    def test_a_model_without_a_module_is_refused(self):
        worker = self.start("--speculation=mtp", wait=False)
        record = worker.wait_for_log("the worker ends")
        self.assertIn("--speculation=mtp: no module for multi-token prediction", record["reason"])

    def test_a_draft_model_of_another_tokenizer_is_refused(self):
        def other(tokenizer):
            tokenizer["normalizer"] = {"type": "Lowercase"}

        with altered_demo_model("tokenizer.json", other) as draft:
            worker = self.start("--speculation=draft", f"--draft_model={draft}", wait=False)
            record = worker.wait_for_log("the worker ends")
        self.assertIn("the draft model's tokenizer", record["reason"])

    def start(self, *flags, model=fleet.DEMO_MODEL, **keywords):
        return fleet.start_worker(model, "--threads=1", "--kv_blocks=512", *flags, **keywords)

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
