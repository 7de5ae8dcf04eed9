#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SMG, a gateway for vLLM, unmodified, before workers that it drives by vllm.grpc.engine: its answers are those that the
workers give to a client of their own protocol, also while one of them is killed."""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from base import INSTALLED, MODEL, QUESTION, fleet, installed, pb  # noqa: E402

MAX_TOKENS = 20
START_TIMEOUT_S = 120


def ask(url, path, body):
    request = urllib.request.Request(url + path, json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read().decode()


class SmgTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
                       for _ in range(2)]
        cls.client = fleet.Client(cls.workers[0].address)
        cls.client.wait_for_model()
        fleet.Client(cls.workers[1].address).wait_for_model()
        cls.log = tempfile.TemporaryFile("w+")
        port, metrics = fleet.free_port(), fleet.free_port()
        cls.url = f"http://127.0.0.1:{port}"
        cls.smg = subprocess.Popen(
            [INSTALLED / "smg/bin/smg", "launch", "--host", "127.0.0.1", "--port", str(port),
             "--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics),
             "--worker-urls", *(f"grpc://{worker.address}" for worker in cls.workers),
             "--policy", "round_robin"],
            stdout=cls.log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(cls.stop)
        fleet.wait_until(cls.is_ready, "SMG's workers", START_TIMEOUT_S)

    @classmethod
    def is_ready(cls):
        if cls.smg.poll() is not None:
            raise RuntimeError("SMG ended: " + cls.written())
        try:
            return len(json.loads(ask_get(cls.url, "/workers"))["workers"]) == 2 and ask_get(
                cls.url, "/readiness") is not None
        except (urllib.error.URLError, ConnectionError):
            return False

    @classmethod
    def written(cls):
        cls.log.seek(0)
        return cls.log.read()[-3000:]

    @classmethod
    def stop(cls):
        cls.smg.kill()
        cls.smg.wait()
        for worker in cls.workers:
            worker.kill()

    def expected(self, prompt=None):
        """The answer to a prompt, or to the question, of a client of continuo.v1."""
        request = pb.GenerateRequest()
        if prompt is None:
            request.conversation.messages.add(role="user", content=QUESTION)
        else:
            # SMG adds no special tokens to a text.
            tokens = self.client.inference.Tokenize(pb.TokenizeRequest(text=prompt, omit_special_tokens=True))
            request.token_ids.ids.extend(tokens.token_ids)
        request.sampling.temperature = 0
        request.stopping.max_tokens = MAX_TOKENS
        return "".join(delta.text for response in self.client.inference.Generate(request)
                       for delta in response.deltas)

    def body(self, **more):
        return {"model": MODEL, "max_tokens": MAX_TOKENS, "temperature": 0, **more}

    def test_1_chat_and_completions(self):
        messages = [{"role": "user", "content": QUESTION}]
        answer = json.loads(ask(self.url, "/v1/chat/completions", self.body(messages=messages)))
        self.assertEqual(answer["choices"][0]["message"]["content"].strip(), self.expected().strip())
        self.assertGreater(answer["usage"]["prompt_tokens"], 0)
        streamed = ask(self.url, "/v1/chat/completions", self.body(messages=messages, stream=True))
        text = ""
        for line in streamed.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    text += choice["delta"].get("content") or ""
        self.assertEqual(text.strip(), self.expected().strip())
        completion = json.loads(ask(self.url, "/v1/completions", self.body(prompt="Mira lives")))
        self.assertEqual(completion["choices"][0]["text"].strip(), self.expected("Mira lives").strip())

    def test_2_seeds_choices_and_schemas(self):
        messages = [{"role": "user", "content": QUESTION}]
        sampled = self.body(messages=messages, temperature=1, seed=7, n=2)
        first, again = (json.loads(ask(self.url, "/v1/chat/completions", sampled)) for _ in range(2))
        texts = [choice["message"]["content"] for choice in first["choices"]]
        self.assertEqual(texts, [choice["message"]["content"] for choice in again["choices"]],
                         "whichever worker answers")
        self.assertEqual(len(texts), 2)
        schema = {"type": "object", "properties": {"n": {"enum": [7]}}, "required": ["n"],
                  "additionalProperties": False}
        body = self.body(messages=messages, response_format={
            "type": "json_schema", "json_schema": {"name": "n", "schema": schema, "strict": True}})
        answer = json.loads(ask(self.url, "/v1/chat/completions", {**body, "max_tokens": 60}))
        self.assertEqual(json.loads(answer["choices"][0]["message"]["content"]), {"n": 7})

    def test_3_a_worker_is_killed(self):
        expected = self.expected("Mira lives")
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = [pool.submit(ask, self.url, "/v1/completions", self.body(prompt="Mira lives"))
                       for _ in range(60)]
            answers[10].result()
            self.workers[1].kill()
            texts = [json.loads(answer.result())["choices"][0]["text"] for answer in answers]
        self.assertEqual({text.strip() for text in texts}, {expected.strip()})


def ask_get(url, path):
    with urllib.request.urlopen(url + path, timeout=10) as response:
        return response.read().decode()


SmgTest = installed("smg", "SMG")(SmgTest)

if __name__ == "__main__":
    unittest.main(verbosity=2)
