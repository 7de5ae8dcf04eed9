#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vectors of a BERT with a WordPiece tokenizer, from real gateways and workers, beside a forward pass in float64."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import grpc
import numpy
import openai

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from bert import CLS, CONTEXT, LETTERS, SEP, VOCABULARY, Bert, make_folder  # noqa: E402

FLAGS = ("--threads=1", "--kv_cache_memory=16MiB", "--weights=fp32", "--model_name=vectors")
TEXTS = [("Oslo sing. " * (i % 4) + LETTERS[i % 20:i % 20 + 1 + i % 6]) for i in range(64)]


class EncodersTest(unittest.TestCase):
    POOLINGS = {"mean_tokens": lambda states: states.mean(0), "cls_token": lambda states: states[0]}

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-encoders-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        for pooling in cls.POOLINGS:
            make_folder(cls.folder / pooling, pooling)
        cls.model = cls.folder / "mean_tokens"
        cls.workers = [fleet.start_worker(cls.model, *FLAGS) for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model(num_workers=2)
        cls.client = openai.OpenAI(base_url=f"http://{cls.gateway.http_address}/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        for worker in cls.workers:
            worker.kill()

    def vectors(self, texts, **options):
        answer = self.client.embeddings.create(model="vectors", input=texts, **options)
        return [numpy.float32(entry.embedding).tolist() for entry in answer.data]

    def embed(self, worker, texts):
        stub = fleet.pb_grpc.InferenceServiceStub(grpc.insecure_channel(worker.address))
        response = stub.Embed(pb.EmbedRequest(inputs=[pb.EmbedInput(text=text) for text in texts]))
        return [list(vector.values) for vector in response.embeddings]

    def ids(self, text):
        return list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)

    def test_words_are_cut_into_pieces_between_cls_and_sep(self):
        pieces = [VOCABULARY[i] for i in self.ids("OSLO Sing.")]
        self.assertEqual(pieces, ["[CLS]", "oslo", "s", "##ing", ".", "[SEP]"])

    def test_vectors_are_those_of_float64(self):
        for pooling, pool in self.POOLINGS.items():
            worker = fleet.start_worker(self.folder / pooling, *FLAGS)
            bert = Bert(self.folder / pooling)
            for text, vector in zip(TEXTS, self.embed(worker, TEXTS)):
                want = pool(bert.states(self.ids(text)))
                want /= numpy.linalg.norm(want)
                numpy.testing.assert_allclose(vector, want, atol=2e-5)
            worker.kill()

    def test_a_vector_is_the_same_alone_and_in_a_batch_and_on_any_number_of_ranks(self):
        batch = self.vectors(TEXTS)
        self.assertEqual(batch, [self.vectors(text)[0] for text in TEXTS])
        for ranks in (2, 4):
            worker = fleet.start_worker(self.model, *FLAGS, f"--tensor_parallel={ranks}", "--max_prefill_chunk=5")
            self.assertEqual(batch, self.embed(worker, TEXTS))
            worker.kill()

    def test_a_text_that_is_too_long_is_refused_or_cut_between_its_special_tokens(self):
        text = "a " * (2 * CONTEXT)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.vectors(text)
        self.assertEqual(refused.exception.code, "context_length_exceeded")
        a = VOCABULARY.index("a")
        cut = self.vectors(text, extra_body={"truncate_prompt_tokens": 9})
        self.assertEqual(cut, self.vectors([CLS, *[a] * 7, SEP]))
        longest = self.vectors(text, extra_body={"truncate_prompt_tokens": -1})
        self.assertEqual(longest, self.vectors([CLS, *[a] * (CONTEXT - 2), SEP]))

    def test_an_encoder_generates_nothing(self):
        with self.assertRaises(openai.InternalServerError) as refused:
            self.client.completions.create(model="vectors", prompt="a", max_tokens=1)
        self.assertEqual(refused.exception.status_code, 501)
        for flags, why in ((["--task=generate"], "encoder, which generates nothing"),
                           (["--task=score"], "the model is an encoder"), (["--device=cuda:0"], ""),
                           ([f"--lora_root={self.folder}"], "adapters of encoders")):
            run = subprocess.run([fleet.BIN / "continuo-worker", f"--model={self.model}", *FLAGS, *flags],
                                 capture_output=True, text=True, timeout=60)
            self.assertNotEqual(run.returncode, 0)
            self.assertIn(why, run.stdout + run.stderr)

    def test_files_without_modules_give_the_mean_of_all_states(self):
        plain = self.folder / "plain"
        shutil.copytree(self.model, plain)
        (plain / "modules.json").unlink()
        worker = fleet.start_worker(plain, *FLAGS)
        want = Bert(plain).states(self.ids("Oslo")).mean(0)
        numpy.testing.assert_allclose(self.embed(worker, ["Oslo"])[0], want, atol=2e-5 * numpy.abs(want).max())
        worker.kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
