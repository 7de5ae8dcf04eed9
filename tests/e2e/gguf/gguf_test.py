#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A GGUF file gives the same bits as the Hugging Face folder with the values that its blocks mean: every family,
every type, also on several ranks, whose columns begin within blocks. --weights=stored, the integers of the file, gives
the same bits on any number of ranks, from the cache of packed weights and after a worker was lost, near those of the
values. Files that were cut are refused."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

import gguf_cases  # noqa: E402
import gguf_models  # noqa: E402

# What int8 activations may change of a log-probability, as a part of the range of all. They change a product by a part
# in 250 at most, over a few layers.
MOST_OFF = 0.05
TEXT = "Mira lives in Oslo, and Tom's 12 cats  play\tthe drums: where?"


def requests():
    for temperature in (0, 1):
        for chat in (False, True):
            request = pb.GenerateRequest()
            if chat:
                request.conversation.messages.add(role="user", content=TEXT)
            else:
                request.text = TEXT
            request.sampling.temperature = temperature
            request.sampling.seed = 7
            request.stopping.max_tokens = 24
            request.stopping.ignore_eos = True
            request.output.logprobs = 3
            request.output.prompt_logprobs = 3
            yield request


def long_requests():
    """Of answers that are long enough to count drafts."""
    for seed in range(4):
        request = pb.GenerateRequest()
        request.text = TEXT
        request.sampling.temperature = 1
        request.sampling.seed = seed
        request.stopping.max_tokens = 150
        request.stopping.ignore_eos = True
        yield request


class GgufTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def answers(self, model, *flags, asked=requests, most_wrong=None):
        worker = fleet.start_worker(model, "--threads=2", "--kv_cache_memory=16MiB", "--model_name=m", *flags)
        client = fleet.Client(worker.address)
        found = [client.generate(request).comparable() for request in asked()]
        if most_wrong is not None:
            page = fleet.scrape(worker.metrics_address)
            drafts, right = (sum(value for series, value in page.items() if series.startswith(name)) for name in
                             ("continuo_draft_tokens_total", "continuo_accepted_draft_tokens_total"))
            self.assertGreater(right, 200)
            self.assertLess(drafts - right, most_wrong * drafts)
        self.assertEqual(worker.terminate(), 0)
        return found

    def check(self, case, first_type, *flags):
        model, file = gguf_models.write_model(self.folder, case, first_type)
        expected = self.answers(model, "--weights=fp32")
        got = self.answers(file, "--weights=fp32", *flags)
        for one, other in zip(expected, got):
            self.assertEqual(one, other)
        ids = [answer["ids"] for answer in expected]
        self.assertGreater(len({tuple(i[0]) for i in ids}), 1, "all answers are alike")

    def test_every_family(self):
        for i, case in enumerate(gguf_cases.FAMILIES):
            with self.subTest(case):
                self.check(case, 2 * i, "--tensor_parallel=2")

    def test_modules_draft(self):
        for case in gguf_cases.WITH_MODULES:
            with self.subTest(case):
                model, file = gguf_models.write_model(self.folder, case, 0, with_module=True)
                expected = self.answers(model, "--weights=fp32", "--speculation=off", asked=long_requests)
                got = self.answers(file, "--weights=fp32", "--speculation=mtp", "--always_draft",
                                   asked=long_requests, most_wrong=0.5)
                self.assertEqual(got, expected)

    def test_every_type(self):
        # Two layers and the embedding have 15 matrices; there are 16 types.
        for first in (0, 8):
            with self.subTest(first):
                self.check("llama", first)

    def scores(self, model, *flags):
        """The log-probability of each token of a prompt."""
        worker = fleet.start_worker(model, "--threads=2", "--kv_cache_memory=16MiB", *flags)
        request = next(requests())
        answer = fleet.Client(worker.address).generate(request)
        self.assertEqual(worker.terminate(), 0)
        return [token.logprob for token in answer.prompt_logprobs]

    def test_stored_integers(self):
        # Experts, heads of states in another order of columns, latent vectors by columns.
        cases = ("llama", "qwen3moe", "qwen3_5", "deepseek_v2_split")
        for i, case in enumerate(cases):
            with self.subTest(case):
                model, file = gguf_models.write_model(self.folder, case, 5 * i)
                cache = f"--weights_cache={self.folder / 'packed'}"
                expected = self.answers(file, "--weights=stored")
                # The second start reads what the first has packed.
                for flags in (["--tensor_parallel=2", cache], ["--tensor_parallel=2", cache],
                              ["--max_prefill_chunk=16", "--block_size=8"]):
                    self.assertEqual(self.answers(file, "--weights=stored", *flags), expected, flags)
                wide, stored = self.scores(file, "--weights=fp32"), self.scores(file, "--weights=stored")
                self.assertEqual(len(stored), len(wide))
                self.assertNotEqual(stored, wide)
                off = max(abs(a - b) for a, b in zip(wide, stored))
                self.assertLess(off, MOST_OFF * (max(wide) - min(wide)), case)

    def test_every_type_as_stored(self):
        # Two layers and the embedding have 15 matrices; there are 16 types.
        for first in (0, 8):
            with self.subTest(first):
                _, file = gguf_models.write_model(self.folder, "llama", first)
                wide, stored = self.scores(file, "--weights=fp32"), self.scores(file, "--weights=stored")
                self.assertLess(max(abs(a - b) for a, b in zip(wide, stored)), MOST_OFF * (max(wide) - min(wide)))

    def test_stored_integers_are_described(self):
        _, file = gguf_models.write_model(self.folder, "llama", 0)
        described = subprocess.run([fleet.BIN / "continuo-worker", f"--model={file}", "--weights=stored",
                                    "--describe=json"], check=True, capture_output=True, text=True)
        kept = json.loads(described.stdout)["computed"]["kept"]
        self.assertIn("Q4_K (1 matrix) as int4 in groups of 32 with minima", kept)
        self.assertIn("Q6_K (1 matrix) as int8 in groups of 16", kept)
        self.assertIn("F16 (1 matrix) as fp32", kept)

    def test_a_file_without_integers_is_refused(self):
        model, _ = gguf_models.write_model(self.folder, "llama", 0)
        worker = fleet.start_worker(model, "--weights=stored", wait=False)
        self.assertNotEqual(worker.process.wait(60), 0)
        self.assertTrue(any("no matrix of the model is stored as integers" in line for line in worker.lines),
                        worker.lines)

    def test_names_and_refusals(self):
        _, file = gguf_models.write_model(self.folder, "llama", 7)
        whole = file.read_bytes()
        for size, cause in ((1000, "is it truncated?"), (len(whole) - 1, "is it truncated?")):
            cut = self.folder / "cut.gguf"
            cut.write_bytes(whole[:size])
            worker = fleet.start_worker(cut, wait=False)
            self.assertNotEqual(worker.process.wait(60), 0)
            self.assertTrue(any(cause in line for line in worker.lines), worker.lines)
        # A folder with GGUF files and no config.json names them.
        alone = self.folder / "alone"
        alone.mkdir()
        (alone / "some.gguf").write_bytes(whole)
        worker = fleet.start_worker(alone, wait=False)
        self.assertNotEqual(worker.process.wait(60), 0)
        self.assertTrue(any("it has GGUF files, give one of them: some.gguf" in line for line in worker.lines),
                        worker.lines)
        # A file's model has the file's name.
        worker = fleet.start_worker(alone / "some.gguf")
        gateway = fleet.start_gateway([worker])
        self.assertEqual(fleet.Client(gateway.address).wait_for_model().name, "some")
        self.assertEqual((gateway.terminate(), worker.terminate()), (0, 0))


if __name__ == "__main__":
    unittest.main()
