# SPDX-License-Identifier: Apache-2.0
"""The fleet that docs/snippets.md speaks of, what it answers to plain HTTP and gRPC, and how a block is run."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import numpy

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1] / "models")]
from base import INSTALLED, fleet, installed, pb  # noqa: E402, F401
from page import placed  # noqa: E402
from rerank_test import make_folder  # noqa: E402

MODEL, EMBEDDINGS, RERANKER = "demo-model", "demo-embeddings", "demo-reranker"
KEY = "sk-0123456789abcdef"
STORY = [{"role": "user", "content": "Tell me a story."}]
PROMPT = "Mira lives"
SAMPLING = {"max_tokens": 40, "seed": 7}
TEXTS = ["Mira lives in Oslo.", "Jonas plays the cello."]
QUERY, DOCUMENTS = "Who lives in Oslo?", ["Jonas plays the cello.", "Mira lives in Oslo."]
START_TIMEOUT_S = 400


def ask(url, body=None, key=KEY, model=None):
    """The answer to plain HTTP, as text; `model` as Envoy AI Gateway's filter tells it to the routes."""
    headers = {"Content-Type": "application/json", "Authorization": "Bearer " + key}
    if model is not None:
        headers["x-ai-eg-model"] = model
    request = urllib.request.Request(url, None if body is None else json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=240) as response:
        return response.read().decode()


def ask_json(url, body=None, key=KEY, model=None):
    return json.loads(ask(url, body, key, model))


def streamed(events):
    """The text of a stream of chat.completion.chunk."""
    chunks = [line[6:] for line in events.splitlines() if line.startswith("data: ")]
    if chunks.pop() != "[DONE]":
        raise AssertionError("the stream has no end: " + events)
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in json.loads(chunk)["choices"])


def float32(vectors):
    return [numpy.float32(vector).tolist() for vector in vectors]


class SnippetsTest(unittest.TestCase):
    """A worker for each of the page's models, and a gateway that wants the page's key."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="continuo-snippets-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        make_folder(cls.folder / RERANKER)
        cls.workers = [cls.start_worker(fleet.DEMO_MODEL), cls.start_worker(
            fleet.DEMO_MODEL, "--task=embed", f"--model_name={EMBEDDINGS}"), cls.start_worker(cls.folder / RERANKER)]
        keys = cls.folder / "keys"
        keys.write_text(f"somebody {KEY}\n")
        cls.gateway = fleet.start_gateway(cls.workers, f"--api_keys_file={keys}")
        cls.addClassCleanup(cls.gateway.kill)
        cls.url = f"http://{cls.gateway.http_address}"
        cls.http, cls.grpc = {"localhost:8080": cls.gateway.http_address}, {"localhost:50050": cls.gateway.address}
        cls.client = fleet.Client(cls.gateway.address)
        fleet.wait_until(cls.all_are_served, "all models")

    @classmethod
    def start_worker(cls, *arguments):
        worker = fleet.start_worker(*arguments, "--threads=1", "--kv_cache_memory=64MiB")
        cls.addClassCleanup(worker.kill)
        return worker

    @classmethod
    def all_are_served(cls):
        models = ask_json(cls.url + "/v1/models")["data"]
        return sorted(model["id"] for model in models) == sorted([MODEL, EMBEDDINGS, RERANKER])

    def generated(self, request):
        """The text of a generation over gRPC."""
        request.model = MODEL
        request.stopping.max_tokens, request.sampling.seed = SAMPLING["max_tokens"], SAMPLING["seed"]
        return self.client.generate(request, metadata=(("authorization", "Bearer " + KEY),)).text[0]

    def story(self, **sampling):
        """The answer to STORY with the page's seed; another seed has another one."""
        def content(**more):
            body = {"model": MODEL, "messages": STORY, **SAMPLING, **sampling, **more}
            return ask_json(self.url + "/v1/chat/completions", body)["choices"][0]["message"]["content"]
        request = pb.GenerateRequest()
        request.conversation.messages.add(**STORY[0])
        for name, value in sampling.items():
            setattr(request.sampling, name, value)
        expected = content()
        self.assertEqual(self.generated(request), expected, "HTTP and gRPC differ")
        self.assertNotEqual(content(seed=8), expected, "a snippet that sends no seed would not be noticed")
        return expected

    def completion(self):
        body = {"model": MODEL, "prompt": PROMPT, **SAMPLING}
        expected = ask_json(self.url + "/v1/completions", body)["choices"][0]["text"]
        self.assertEqual(self.generated(pb.GenerateRequest(text=PROMPT)), expected, "HTTP and gRPC differ")
        return expected

    def embedded(self, model, inputs):
        """The vectors of inputs over gRPC, the values of each."""
        response = self.client.inference.Embed(pb.EmbedRequest(model=model, inputs=inputs), timeout=120,
                                               metadata=(("authorization", "Bearer " + KEY),))
        return [list(embedding.values) for embedding in response.embeddings]

    def vectors(self):
        body = {"model": EMBEDDINGS, "input": TEXTS}
        expected = float32(entry["embedding"] for entry in ask_json(self.url + "/v1/embeddings", body)["data"])
        self.assertEqual(self.embedded(EMBEDDINGS, [pb.EmbedInput(text=text) for text in TEXTS]), expected,
                         "HTTP and gRPC differ")
        return expected

    def ranks(self):
        body = {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS}
        results = ask_json(self.url + "/v2/rerank", body)["results"]
        self.assertEqual(len(results), len(DOCUMENTS))
        scores = self.embedded(RERANKER, [pb.EmbedInput(pair=pb.TextPair(query=QUERY, document=document))
                                          for document in DOCUMENTS])
        self.assertEqual(float32(scores), float32([result["relevance_score"]]
                                                  for result in sorted(results, key=lambda r: r["index"])),
                         "HTTP and gRPC differ")
        self.assertEqual([result["index"] for result in results],
                         sorted(range(len(scores)), key=lambda i: -scores[i][0]))
        return [(result["index"], result["relevance_score"]) for result in results]

    def environment(self, *programs, **more):
        """Nothing of this machine's configuration leads a client elsewhere, or to where a snippet does not point."""
        path = os.pathsep.join([*(str(program) for program in programs), os.environ["PATH"]])
        kept = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
        return {**kept, "PATH": path, "HOME": str(self.folder), "TMPDIR": str(self.folder), "NO_COLOR": "1",
                # Its own search of the internet.
                "LITELLM_LOCAL_MODEL_COST_MAP": "True", **more}

    def run_snippet(self, name, command, places, suffix=".py"):
        """What a block prints, as a file of that suffix behind a command."""
        script = self.folder / f"snippet-{name}{suffix}"  # a name that no module has
        script.write_text(placed(name, places))
        run = subprocess.run([str(word) for word in (*command, script)], capture_output=True, text=True, timeout=480,
                             stdin=subprocess.DEVNULL, cwd=self.folder, env=self.environment())
        self.assertEqual(run.returncode, 0, run.stdout[-3000:] + run.stderr[-6000:])
        return run.stdout

    def start(self, name, places, is_ready, environment, more=""):
        """Runs a block of shell that starts a server; `more` is for what the page leaves to defaults that two tests
        cannot share."""
        text = placed(name, places).rstrip("\n") + more
        self.start_program(name, ["bash", "-ec", text], is_ready, environment)

    def start_program(self, name, command, is_ready, environment=None):
        """Runs it until the test ends, with what it starts."""
        log = tempfile.TemporaryFile("w+")
        self.addCleanup(log.close)
        process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=subprocess.STDOUT, cwd=self.folder, start_new_session=True,
                                   env=environment or self.environment())

        def stop():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        self.addCleanup(stop)

        def is_up():
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"{name} ended: " + log.read()[-3000:])
            try:
                return is_ready()
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                return False
        fleet.wait_until(is_up, f"the server of {name}", START_TIMEOUT_S)
