#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scores of given texts over /v1/completions (echo, logprobs, max_tokens 0 or 1), as evaluation
harnesses ask for them: whatever runs beside them, and through a worker's death, they are those of
one request alone, of gRPC, and of the generation that made the text."""
import concurrent.futures
import json
import pathlib
import random
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

WORDS = "Mira Tom Lena lives in Oslo Lima Rome and plays the violin drums . Where does ? It is".split()
WORKER_FLAGS = ("--threads=1", "--kv_cache_memory=64MiB")


def texts(count, seed):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randrange(2, 60))) for _ in range(count)]


class EvaluationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = [fleet.start_worker(fleet.DEMO_MODEL, *WORKER_FLAGS) for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()

    def post(self, **members):
        request = urllib.request.Request(
            f"http://{self.gateway.http_address}/v1/completions", json.dumps(members).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.read()

    def score(self, prompts, **members):
        """The logprobs of each prompt, echoed."""
        members = {"max_tokens": 1, "logprobs": 1, "temperature": 0, "seed": 1, **members}
        body = json.loads(self.post(prompt=prompts, echo=True, **members))
        return [choice["logprobs"] for choice in sorted(body["choices"], key=lambda c: c["index"])]

    def ids_of(self, text):
        return list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)

    def grpc_scores(self, ids):
        request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids))
        request.output.prompt_logprobs = 1
        request.stopping.max_tokens = 0
        return [entry.logprob for response in self.grpc.inference.Generate(request)
                for entry in response.prompt_logprobs]

    def test_text_and_ids_have_the_scores_of_grpc(self):
        for text in texts(8, seed=1):
            ids = self.ids_of(text)
            want = self.grpc_scores(ids)
            for prompt in (text, ids):
                for max_tokens in (0, 1):
                    with self.subTest(text=text, ids=prompt is ids, max_tokens=max_tokens):
                        scores, = self.score([prompt], max_tokens=max_tokens)
                        self.assertEqual(scores["token_logprobs"][0], None)
                        self.assertEqual(scores["top_logprobs"][0], None)
                        # JSON's numbers are the floats' own.
                        got = scores["token_logprobs"][1:len(ids)]
                        self.assertEqual(got, want)
                        for key in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
                            self.assertEqual(len(scores[key]), len(ids) + max_tokens, key)

    def test_echoed_text_is_the_prompt(self):
        for text in texts(4, seed=2):
            ids = self.ids_of(text)
            for prompt in (text, ids):
                body = json.loads(self.post(prompt=prompt, echo=True, max_tokens=0, logprobs=0))
                choice = body["choices"][0]
                self.assertEqual(choice["text"], text)
                self.assertEqual(choice["finish_reason"], "length")
                scores = choice["logprobs"]
                # The beginning of the sequence has a name and no text.
                begin, *tokens = scores["tokens"]
                self.assertEqual((begin, scores["text_offset"][:2]), ("<|begin|>", [0, 0]))
                self.assertEqual("".join(tokens), text)
                for token, offset in zip(tokens, scores["text_offset"][1:]):
                    self.assertEqual(text[offset:offset + len(token)], token)
                plain = json.loads(self.post(prompt=prompt, echo=True, max_tokens=3, temperature=0))
                self.assertTrue(plain["choices"][0]["text"].startswith(text))

    def test_a_stream_gives_what_a_body_gives(self):
        members = {"prompt": self.ids_of("Mira lives in Oslo"), "echo": True, "logprobs": 2,
                   "max_tokens": 4, "temperature": 0, "ignore_eos": True}
        whole = json.loads(self.post(**members))["choices"][0]
        text, scores = "", {}
        for line in self.post(stream=True, **members).decode().splitlines():
            if not line.startswith("data: {"):
                continue
            choice = json.loads(line[6:])["choices"][0]
            text += choice["text"]
            for key, values in (choice["logprobs"] or {}).items():
                scores.setdefault(key, []).extend(values)
        self.assertEqual(text, whole["text"])
        self.assertEqual(scores, whole["logprobs"])

    def test_a_generation_scores_as_it_was_generated(self):
        for text in texts(4, seed=3):
            ids = self.ids_of(text)
            request = pb.GenerateRequest(token_ids=pb.TokenIds(ids=ids))
            request.sampling.temperature, request.sampling.seed = 1, 7
            request.stopping.max_tokens, request.stopping.ignore_eos = 40, True
            request.output.logprobs = 0
            deltas = [d for r in self.grpc.inference.Generate(request) for d in r.deltas]
            answer = [i for d in deltas for i in d.token_ids]
            decoded = [x.logprob for d in deltas for x in d.logprobs]
            scores, = self.score([ids + answer], max_tokens=0)
            self.assertEqual(scores["token_logprobs"][len(ids):], decoded)

    def test_concurrency_batches_and_a_death_change_no_bit(self):
        prompts = [self.ids_of(text) for text in texts(96, seed=4)]
        alone = [self.score([prompt])[0] for prompt in prompts]
        batches = [(at, min(at + size, len(prompts)))
                   for size in (1, 3, 8) for at in range(0, len(prompts), size)]
        random.Random(5).shuffle(batches)
        begun = threading.Semaphore(0)

        def run(batch):
            begun.release()
            return self.score(prompts[batch[0]:batch[1]])

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            pending = [pool.submit(run, batch) for batch in batches]
            for _ in range(len(batches) // 3):
                begun.acquire()
            self.workers.pop(0).kill()
            for (begin, end), future in zip(batches, pending):
                self.assertEqual(future.result(), alone[begin:end], (begin, end))

    def test_suffix_needs_tokens_of_the_model(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.post(prompt="def f(", suffix="return x")
        self.assertEqual(caught.exception.code, 400)
        error = json.loads(caught.exception.read())["error"]
        self.assertEqual(error["param"], "suffix")
        self.assertIn("fill-in-the-middle", error["message"])


if __name__ == "__main__":
    unittest.main()
