#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SMG, unmodified, before two workers whose files it does not have: it asks them for the tokenizer, and sends prompts
where the events of their prefix caches say that the beginnings are."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from subscriber import Engine, common_pb2, fleet  # noqa: E402

SMG = fleet.ROOT / "build/clients/smg/bin/smg"
MODEL = "moved-model"
START_TIMEOUT_S = 120
PROMPTS, BLOCK = 10, 16
TEXT = "Mira lives in Oslo and plays the violin. "


def get(url):
    with urllib.request.urlopen(url, timeout=30) as response:
        return response.read().decode()


def ask(url, body):
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


@unittest.skipUnless(SMG.exists(), "SMG comes with scripts/setup.sh --all")
class SmgEventsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="continuo-smg-")
        cls.addClassCleanup(folder.cleanup)
        model = pathlib.Path(folder.name) / MODEL
        shutil.copytree(fleet.DEMO_MODEL, model)
        cls.workers = [fleet.start_worker(model, "--threads=1", "--kv_cache_memory=64MiB") for _ in range(2)]
        for worker in cls.workers:
            cls.addClassCleanup(worker.kill)
        cls.engines = [Engine(worker.address) for worker in cls.workers]
        for engine in cls.engines:
            engine.client.wait_for_model()
            # Workers keep the archive, so that the files need not be there any longer.
            list(engine.stub.GetTokenizer(common_pb2.GetTokenizerRequest()))
        shutil.rmtree(model)
        cls.log = tempfile.TemporaryFile("w+")
        cls.addClassCleanup(cls.log.close)
        port, metrics = fleet.free_port(), fleet.free_port()
        cls.url, cls.metrics_address = f"http://127.0.0.1:{port}", f"127.0.0.1:{metrics}"
        cls.smg = subprocess.Popen(
            [SMG, "launch", "--host", "127.0.0.1", "--port", str(port), "--prometheus-host", "127.0.0.1",
             "--prometheus-port", str(metrics), "--policy", "cache_aware",
             "--worker-urls", *(f"grpc://{worker.address}" for worker in cls.workers)],
            stdout=cls.log, stderr=subprocess.STDOUT)
        cls.addClassCleanup(cls.stop)
        fleet.wait_until(cls.is_ready, "SMG's workers", START_TIMEOUT_S)

    @classmethod
    def is_ready(cls):
        if cls.smg.poll() is not None:
            raise RuntimeError("SMG ended: " + cls.written())
        try:
            return len(json.loads(get(cls.url + "/workers"))["workers"]) == 2 and get(cls.url + "/readiness") is not None
        except (urllib.error.URLError, ConnectionError):
            return False

    @classmethod
    def written(cls):
        cls.log.seek(0)
        return cls.log.read()

    @classmethod
    def stop(cls):
        cls.smg.kill()
        cls.smg.wait()

    def body(self, prompt):
        return {"model": MODEL, "prompt": prompt, "max_tokens": 4, "temperature": 0}

    def metric(self, name):
        """The sum over all series of SMG's."""
        return sum(value for series, value in fleet.scrape(self.metrics_address).items()
                   if series.split("{")[0] == name)

    def test_1_the_tokenizer_comes_from_a_worker(self):
        prompt = "Mira lives"
        answer = ask(self.url, self.body(prompt))["choices"][0]["text"]
        engine = self.engines[0]
        expected = engine.text(engine.generate(engine.plain_tokens(prompt), max_tokens=4).output_ids)
        self.assertEqual(answer.strip(), expected.strip())
        self.assertIn("Fetching tokenizer from worker", self.written())

    def test_2_prompts_go_where_their_beginnings_are(self):
        for i in range(PROMPTS):
            engine, worker = self.engines[i % 2], self.workers[i % 2]
            prompt = f"Story {i}: " + TEXT * 10
            tokens = engine.plain_tokens(prompt)
            before = self.metric("smg_kv_event_blocks_total")
            # Another client has asked this worker, which SMG knows by its events alone.
            engine.generate(tokens)
            blocks = (len(tokens) - 1) // BLOCK
            fleet.wait_until(lambda: self.metric("smg_kv_event_blocks_total") >= before + blocks, "SMG's blocks")
            hits = self.hits(worker)
            ask(self.url, self.body(prompt))
            self.assertGreaterEqual(self.hits(worker), hits + blocks * BLOCK, prompt)
        for name in ("smg_kv_event_gaps_total", "smg_kv_event_parentless_blocks_total",
                     "smg_kv_event_stream_errors_total", "smg_kv_event_subscription_failures_total"):
            self.assertEqual(self.metric(name), 0, name)

    @staticmethod
    def hits(worker):
        return sum(value for series, value in fleet.scrape(worker.metrics_address).items()
                   if series.startswith("vllm:prefix_cache_hits_total"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
