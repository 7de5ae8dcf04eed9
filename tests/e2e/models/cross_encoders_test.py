#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rankings by a cross-encoder of random weights, whose tokenizer joins query and document, from real gateways and workers,
beside a forward pass in float64."""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc
import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from bert import CLS, CONTEXT, LETTERS, SEP, VOCABULARY, Bert, make_folder  # noqa: E402
from fleet import pb  # noqa: E402

FLAGS = ("--threads=1", "--kv_cache_memory=16MiB", "--weights=fp32", "--model_name=scores")
QUERY = "oslo sing"
DOCUMENTS = [("oslo sing. " * (i % 4) + LETTERS[i % 20:i % 20 + 1 + i % 6]) for i in range(64)]


def float32(value):
    return numpy.float32(value).item()


class CrossEncodersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-cross-encoders-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = cls.folder / "scores"
        make_folder(cls.model)
        cls.workers = [fleet.start_worker(cls.model, *FLAGS) for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model(num_workers=2)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        for worker in cls.workers:
            worker.kill()

    def post(self, body):
        request = urllib.request.Request(f"http://{self.gateway.http_address}/v1/rerank", json.dumps(body).encode(),
                                         {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())

    def scores(self, documents, query=QUERY, **options):
        status, answer = self.post({"query": query, "documents": documents, **options})
        self.assertEqual(status, 200, answer)
        found = {result["index"]: float32(result["relevance_score"]) for result in answer["results"]}
        return [found[i] for i in range(len(documents))]

    def embed(self, worker, inputs):
        stub = fleet.pb_grpc.InferenceServiceStub(grpc.insecure_channel(worker.address))
        return stub.Embed(pb.EmbedRequest(inputs=inputs)).embeddings

    def words(self, text):
        return list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text=text, omit_special_tokens=True)).token_ids)

    def joined(self, query, document):
        """The tokens of a pair as BERT reads them, and which part each counts to."""
        first, second = [CLS, *self.words(query), SEP], [*(self.words(document) if document else []), SEP]
        return first + second, [0] * len(first) + [1] * len(second)

    def test_scores_are_those_of_float64(self):
        bert = Bert(self.model)
        pairs = [pb.EmbedInput(pair=pb.TextPair(query=QUERY, document=document)) for document in DOCUMENTS[:24]]
        for document, found in zip(DOCUMENTS, self.embed(self.workers[0], pairs)):
            want = bert.logit(*self.joined(QUERY, document))
            self.assertAlmostEqual(found.logit, want, delta=1e-4)
            self.assertAlmostEqual(found.values[0], 1 / (1 + math.exp(-want)), delta=1e-5)

    def test_which_text_comes_first_counts(self):
        self.assertNotEqual(self.scores(["sing"], "oslo"), self.scores(["oslo"], "sing"))

    def test_a_score_is_the_same_alone_and_in_a_batch_and_on_any_number_of_ranks(self):
        batch = self.scores(DOCUMENTS)
        self.assertGreater(len(set(batch)), 32)
        self.assertEqual(batch, [self.scores([document])[0] for document in DOCUMENTS])
        pairs = [pb.EmbedInput(pair=pb.TextPair(query=QUERY, document=document)) for document in DOCUMENTS]
        for ranks in (2, 4):
            worker = fleet.start_worker(self.model, *FLAGS, f"--tensor_parallel={ranks}")
            self.assertEqual(batch, [found.values[0] for found in self.embed(worker, pairs)])
            worker.kill()

    def test_a_document_that_is_too_long_is_refused_or_cut_in_front_of_its_separator(self):
        bert = Bert(self.model)
        long = "a " * (2 * CONTEXT)
        status, answer = self.post({"query": QUERY, "documents": [long]})
        self.assertEqual((status, answer["error"]["code"]), (400, "context_length_exceeded"))
        a, first = VOCABULARY.index("a"), [CLS, *self.words(QUERY), SEP]
        for options, kept in (({"max_tokens_per_doc": 3}, 3), ({"truncate_prompt_tokens": len(first) + 5}, 4),
                              ({"truncate_prompt_tokens": -1}, CONTEXT - len(first) - 1)):
            want = bert.logit(first + [a] * kept + [SEP], [0] * len(first) + [1] * (kept + 1))
            self.assertAlmostEqual(self.scores([long], **options)[0], 1 / (1 + math.exp(-want)), delta=1e-5)

    def test_an_instruction_is_refused(self):
        status, answer = self.post({"query": QUERY, "documents": ["a"], "instruction": "Find towns."})
        self.assertEqual((status, answer["error"]["param"]), (400, "instruction"))

    def test_the_same_files_may_give_vectors(self):
        plain = self.folder / "plain"
        shutil.copytree(self.model, plain)
        (plain / "modules.json").unlink()
        worker = fleet.start_worker(plain, *FLAGS, "--task=embed")
        found = self.embed(worker, [pb.EmbedInput(text="oslo")])[0].values
        want = Bert(plain).states([CLS, *self.words("oslo"), SEP]).mean(0)
        numpy.testing.assert_allclose(found, want, atol=2e-5 * numpy.abs(want).max())
        worker.kill()

    def test_describe_tells_of_the_scores(self):
        told = json.loads(subprocess.run([fleet.BIN / "continuo-worker", "--describe=json", f"--model={self.model}"],
                                         capture_output=True, text=True, check=True, timeout=60).stdout)
        self.assertEqual((told["scores"], told["embeddings"]), ({"has_head": True}, None))

    def test_a_tokenizer_that_joins_nothing_is_refused(self):
        broken = self.folder / "broken"
        shutil.copytree(self.model, broken)
        tokenizer = json.loads((broken / "tokenizer.json").read_text())
        tokenizer["post_processor"] = {
            "type": "TemplateProcessing", "single": [{"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 2}}],
            "special_tokens": {}}
        (broken / "tokenizer.json").write_text(json.dumps(tokenizer))
        run = subprocess.run([fleet.BIN / "continuo-worker", f"--model={broken}", *FLAGS], capture_output=True, text=True,
                             timeout=60)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("type_vocab_size", run.stdout + run.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
