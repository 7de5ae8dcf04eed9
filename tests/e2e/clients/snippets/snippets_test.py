#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each block of docs/snippets.md does what it says: it is taken from the page, pointed at a fleet and run, and its
answer is that of plain HTTP, which is that of gRPC."""
import ast
import json
import pathlib
import shutil
import subprocess
import sys
import unittest
import urllib.error
import urllib.request

import yaml

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from served import *  # noqa: E402, F403
import ai_gateway  # noqa: E402
import page  # noqa: E402

VENV = pathlib.Path(sys.executable)  # the tests' own packages
PYTHON = INSTALLED / "python/bin/python"
INFERENCE = INSTALLED / "inference/bin/python"
TESTED = []


def shows(*names):
    """A decorator that tells which snippets a test runs."""
    TESTED.extend(names)
    return lambda test: test


class PageTest(unittest.TestCase):
    def test_each_snippet_has_a_test_and_each_test_a_snippet(self):
        self.assertEqual(sorted(page.blocks(page.PAGE.read_text(encoding="utf-8"))), sorted(TESTED))

    def test_a_block_and_its_name_belong_together(self):
        self.assertEqual(page.blocks("a\n<!-- snippet: a -->\n```sh\nx\n\ny\n```\n"), {"a": "x\n\ny\n"})
        for wrong in ("```\nx\n```", "<!-- snippet: a -->\n\n```\nx\n```", "<!-- snippet: a -->", "<!-- snippet a -->",
                      "<!-- snippet: a -->\n```\nx", "<!-- snippet: a -->\n```\n```\n" * 2):
            with self.assertRaises(ValueError, msg=wrong):
                page.blocks(wrong)

    def test_an_address_that_is_not_replaced_is_an_error(self):
        self.assertIn('"http://there/v1"', placed("openai", {"localhost:8080": "there"}))
        for places in ({}, {"localhost:8080": "there", "localhost:1": "there"}):
            with self.assertRaises(ValueError):
                placed("openai", places)


class LibrariesTest(SnippetsTest):
    @installed("python", "this client")
    @shows("openai")
    def test_openai(self):
        for interpreter in (PYTHON, VENV):
            self.assertEqual(self.run_snippet("openai", [interpreter], self.http), self.story())

    @shows("openai-embeddings")
    def test_openai_embeddings(self):
        self.check_vectors("openai-embeddings", VENV)

    @installed("node", "this client")
    @shows("openai-node")
    def test_openai_for_node(self):
        modules = self.folder / "node_modules"  # looked for beside the script
        modules.symlink_to(INSTALLED / "node/node_modules")
        printed = self.run_snippet("openai-node", [shutil.which("node")], self.http, ".mjs")
        self.assertEqual(printed, self.story() + "\n")

    @installed("python", "this client")
    @shows("langchain", "llama-index", "litellm")
    def test_answers(self):
        for name, sampling in (("langchain", {}), ("llama-index", {"temperature": 0.8}), ("litellm", {})):
            with self.subTest(name):
                self.assertEqual(self.run_snippet(name, [PYTHON], self.http), self.story(**sampling) + "\n")

    @installed("python", "this client")
    @shows("langchain-embeddings", "llama-index-embeddings")
    def test_embeddings(self):
        for name in ("langchain-embeddings", "llama-index-embeddings"):
            with self.subTest(name):
                self.check_vectors(name, PYTHON)

    def check_vectors(self, name, interpreter):
        printed = self.run_snippet(name, [interpreter], self.http)
        self.assertEqual(float32(ast.literal_eval(printed)), self.vectors())

    @shows("cohere")
    def test_cohere(self):
        printed = self.run_snippet("cohere", [VENV], self.http).split()
        pairs = [(int(index), float(score)) for index, score in zip(printed[::2], printed[1::2])]
        self.assertEqual(pairs, self.ranks())

    @installed("inference", "this client")
    @shows("tritonclient", "kserve")
    def test_inference_protocol(self):
        for name, places in (("tritonclient", self.grpc), ("kserve", self.http)):
            with self.subTest(name):
                self.assertEqual(self.run_snippet(name, [INFERENCE], places), self.completion() + "\n")


class GatewaysTest(SnippetsTest):
    """Servers that stand between clients and Continuo."""

    def check_chat(self, url, key):
        """A whole answer and a streamed one."""
        body = {"model": MODEL, "messages": STORY, **SAMPLING}
        expected = self.story()
        self.assertEqual(ask_json(url, body, key)["choices"][0]["message"]["content"], expected)
        self.assertEqual(streamed(ask(url, {**body, "stream": True}, key)), expected)

    def check_vectors(self, url, key):
        entries = ask_json(url, {"model": EMBEDDINGS, "input": TEXTS}, key)["data"]
        self.assertEqual(float32(entry["embedding"] for entry in entries), self.vectors())

    @installed("litellm_proxy", "LiteLLM's proxy")
    @shows("litellm-config", "litellm-proxy")
    def test_litellm(self):
        (self.folder / "config.yaml").write_text(placed("litellm-config", self.http))
        key, port = "sk-of-the-proxy-0123456789abcdef", fleet.free_port()
        url = f"http://127.0.0.1:{port}"
        self.start("litellm-proxy", {"--port 4000": f"--port {port}"}, lambda: ask(url + "/health/liveliness"),
                   self.environment(INSTALLED / "litellm_proxy/bin", LITELLM_MASTER_KEY=key), " --host 127.0.0.1")
        self.check_chat(url + "/v1/chat/completions", key)
        self.check_vectors(url + "/v1/embeddings", key)
        body = {"model": RERANKER, "query": QUERY, "documents": DOCUMENTS}
        results = ask_json(url + "/v1/rerank", body, key)["results"]
        self.assertEqual([(result["index"], result["relevance_score"]) for result in results], self.ranks())

    @installed("open_webui", "Open WebUI")
    @shows("open-webui")
    def test_open_webui(self):
        port = fleet.free_port()
        url = f"http://127.0.0.1:{port}"
        self.start("open-webui", {**self.http, "--port 3000": f"--port {port}"}, lambda: ask(url + "/health"),
                   self.environment(INSTALLED / "open_webui/bin", USE_SLIM_DOCKER="true", WEBUI_AUTH="false",
                                    DATA_DIR=str(self.folder / "open-webui"), OFFLINE_MODE="true"), " --host 127.0.0.1")
        key = ask_json(url + "/api/v1/auths/signin", {"email": "", "password": ""})["token"]
        models = [model["id"] for model in ask_json(url + "/api/models", key=key)["data"]]
        self.assertEqual(sorted(models), sorted([MODEL, EMBEDDINGS, RERANKER]))
        self.check_chat(url + "/api/chat/completions", key)
        self.check_vectors(url + "/api/embeddings", key)

    @installed("smg", "SMG")
    @shows("smg")
    def test_smg(self):
        port, metrics = fleet.free_port(), fleet.free_port()
        url = f"http://127.0.0.1:{port}"
        self.start("smg", {"localhost:50051": self.workers[0].address, "--port 30000": f"--port {port}"},
                   lambda: ask_json(url + "/workers")["workers"] and ask(url + "/readiness"),
                   self.environment(INSTALLED / "smg/bin"),
                   f" --host 127.0.0.1 --prometheus-host 127.0.0.1 --prometheus-port {metrics}")
        self.check_chat(url + "/v1/chat/completions", KEY)


class ResourcesTest(SnippetsTest):
    """Resources of Kubernetes, without a cluster."""

    @installed("inference", "this client")
    @shows("kserve-runtime")
    def test_kserve(self):
        file = self.folder / "kserve.yaml"
        file.write_text(page.blocks(page.PAGE.read_text(encoding="utf-8"))["kserve-runtime"])
        checker = [str(INFERENCE), str(HERE / "kserve_members.py")]
        self.assertGreater(int(subprocess.run([*checker, file], capture_output=True, text=True, check=True).stdout), 40)
        wrong = self.folder / "wrong.yaml"
        wrong.write_text(file.read_text().replace("storageUri", "storageURI"))
        told = subprocess.run([*checker, wrong], capture_output=True, text=True)
        self.assertEqual(told.returncode, 1)
        self.assertIn("spec.predictor.model.storageURI", told.stderr)

        runtime, service = yaml.safe_load_all(file.read_text())
        model = service["spec"]["predictor"]["model"]
        self.assertEqual(model["runtime"], runtime["metadata"]["name"])
        self.assertIn(model["modelFormat"]["name"], [f["name"] for f in runtime["spec"]["supportedModelFormats"]])
        containers = {container["name"]: container for container in runtime["spec"]["containers"]}
        worker, gateway = containers["kserve-container"], containers["transformer-container"]
        # As KServe does: the model lies at /mnt/models, and its service bears the name.
        folder, *flags = (argument.replace("{{.Name}}", service["metadata"]["name"]) for argument in worker["args"])
        self.assertEqual(folder, "--model=/mnt/models")
        worker = self.start_worker(fleet.DEMO_MODEL, *flags)
        self.assertEqual(gateway["args"], ["--workers=localhost:50051"])
        gateway = fleet.start_gateway([worker])
        self.addCleanup(gateway.kill)
        path = containers["transformer-container"]["readinessProbe"]["httpGet"]["path"]
        fleet.wait_until(lambda: self.status(f"http://{gateway.http_address}{path}") == 200, "a worker")
        printed = self.run_snippet("kserve", [INFERENCE], {"localhost:8080": gateway.http_address})
        self.assertEqual(printed, self.completion() + "\n")

    @staticmethod
    def status(url):
        try:
            with urllib.request.urlopen(url, timeout=10) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code

    @installed("envoy", "Envoy")
    @shows("envoy-ai-gateway")
    def test_envoy_ai_gateway(self):
        host, port = self.gateway.http_address.split(":")
        written = "llm-continuo-gateway.llm.svc.cluster.local, port: 8080"
        text = placed("envoy-ai-gateway", {written: f"{host}, port: {port}"})
        listens = fleet.free_port()
        file = self.folder / "envoy.json"
        file.write_text(json.dumps(ai_gateway.envoy_configuration(list(yaml.safe_load_all(text)), listens)))
        url = f"http://127.0.0.1:{listens}"
        envoy = [INSTALLED / "envoy/bin/envoy", "-c", file, "--use-dynamic-base-id", "--concurrency", "1"]
        self.start_program("Envoy", envoy, lambda: self.status(url) == 404)
        body = {"model": MODEL, "messages": STORY, **SAMPLING}
        expected = self.story()
        chat = url + "/v1/chat/completions"
        self.assertEqual(ask_json(chat, body, "none", MODEL)["choices"][0]["message"]["content"], expected)
        self.assertEqual(streamed(ask(chat, {**body, "stream": True}, "none", MODEL)), expected)
        entries = ask_json(url + "/v1/embeddings", {"model": EMBEDDINGS, "input": TEXTS}, "none", EMBEDDINGS)["data"]
        self.assertEqual(float32(entry["embedding"] for entry in entries), self.vectors())
        with self.assertRaises(urllib.error.HTTPError):
            ask(chat, body, "none", "another")


if __name__ == "__main__":
    unittest.main(verbosity=2)
