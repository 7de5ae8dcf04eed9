# SPDX-License-Identifier: Apache-2.0
"""A fleet for stock clients, the answers that they have to give, and how a client is run."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

INSTALLED = fleet.ROOT / "build/clients"
MODEL = "demo-model"  # 1024 tokens
LONG_MODEL = "demo-long"  # the same weights, 32768 tokens
QUESTION = "Mira lives in Oslo and plays the violin. Where does Mira live?"
LONG_QUESTION = "word " * 2000 + QUESTION
PROMPT = "Mira lives"
TOOL = {"type": "function", "function": {
    "name": "find_person", "description": "Tells where somebody is.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}
TOOL_QUESTION, TOOL_RESULT = "Where is Mira?", "Lisbon"
MAX_TOKENS = 20
KEY = "0123456789abcdef0123"
GRPC_KEY = (("authorization", "Bearer " + KEY),)
NAMES = "chat streamed usage streamed_usage stopped completion long"
TOO_LONG = "This model's maximum context length is 1024 tokens"
TOO_LONG_FOR_MESSAGES = "tokens > 1024 maximum"  # Anthropic's words


def installed(path, what):
    """A decorator for tests of a client."""
    return unittest.skipUnless((INSTALLED / path).exists(),
                               f"{what} comes with scripts/setup.sh --all")


class ClientsTest(unittest.TestCase):
    """A gateway that wants a key, two workers with the demo model and one with the same model for
    longer contexts."""

    MODELS = {MODEL: 2, LONG_MODEL: 1}  # and how many workers each has

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-clients-"))
        long_model = cls.folder / LONG_MODEL
        shutil.copytree(fleet.DEMO_MODEL, long_model)
        config = json.loads((long_model / "config.json").read_text())
        config["max_position_embeddings"] = 32768
        (long_model / "config.json").write_text(json.dumps(config))
        cls.folders = ([fleet.DEMO_MODEL] * cls.MODELS[MODEL] + [long_model] * cls.MODELS[LONG_MODEL])
        cls.workers = [cls.start_worker(folder) for folder in cls.folders]
        for worker in cls.workers:
            worker.wait_until_listening()
        keys = cls.folder / "keys"
        keys.write_text(f"somebody {KEY}\n")
        cls.gateway = fleet.start_gateway(cls.addresses(), f"--api_keys_file={keys}")
        cls.url = f"http://{cls.gateway.http_address}"
        cls.grpc = fleet.Client(cls.gateway.address)
        fleet.wait_until(lambda: cls.models_of_grpc() == cls.MODELS, "all workers")
        cls.expected = cls.answers()

    @staticmethod
    def start_worker(folder):
        """Does not wait for it."""
        return fleet.start_worker(folder, "--threads=1", "--kv_cache_memory=64MiB", wait=False)

    @classmethod
    def addresses(cls):
        """Where the gateway finds the workers."""
        return [worker.address for worker in cls.workers]

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()
        shutil.rmtree(cls.folder)

    def wait_until_idle(self):
        """No worker computes and the gateway has no stream open."""
        def idle():
            gateway = fleet.scrape(self.gateway.metrics_address)
            busy = gateway["continuo_gateway_open_streams"]
            for worker in self.workers:
                busy += sum(value for series, value in fleet.scrape(worker.metrics_address).items()
                            if series.startswith(("continuo_running_requests{",
                                                  "continuo_waiting_requests{",
                                                  "continuo_kv_blocks_used{")))
            return busy == 0
        fleet.wait_until(idle, "idle")

    @classmethod
    def models_of_grpc(cls):
        try:
            models = cls.grpc.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True,
                                                   metadata=GRPC_KEY).models
        except fleet.grpc.RpcError as error:
            # The gateway ends a connection that answers no pings, and a channel without calls answers none.
            if error.code() != fleet.grpc.StatusCode.UNAVAILABLE:
                raise
            return {}
        return {m.name: m.num_workers for m in models}

    @classmethod
    def post(cls, path, **members):
        """The answer to plain HTTP."""
        request = urllib.request.Request(cls.url + path, json.dumps(members).encode(),
                                         {"Content-Type": "application/json",
                                          "Authorization": "Bearer " + KEY})
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.loads(response.read())

    @classmethod
    def chat(cls, messages, **members):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        members = {"model": MODEL, "temperature": 0, "max_tokens": MAX_TOKENS, **members}
        return cls.post("/v1/chat/completions", messages=messages, **members)

    @classmethod
    def content(cls, messages, **members):
        return cls.chat(messages, **members)["choices"][0]["message"]["content"]

    @classmethod
    def answers(cls):
        """Returns what a client has to show, by plain HTTP, and equal over gRPC."""
        chat = cls.chat(QUESTION)
        content, usage = chat["choices"][0]["message"]["content"], chat["usage"]
        request = pb.GenerateRequest(model=MODEL)
        request.conversation.messages.add(role="user", content=QUESTION)
        request.sampling.temperature, request.stopping.max_tokens = 0, MAX_TOKENS
        if cls.grpc.generate(request, metadata=GRPC_KEY).text[0] != content:
            raise AssertionError("HTTP and gRPC differ")
        stop = content[4:7]
        request = pb.GenerateRequest(model=MODEL, text=PROMPT)
        request.sampling.temperature, request.stopping.max_tokens = 0, MAX_TOKENS
        completion = cls.post("/v1/completions", model=MODEL, prompt=PROMPT, temperature=0,
                              max_tokens=MAX_TOKENS)["choices"][0]["text"]
        if cls.grpc.generate(request, metadata=GRPC_KEY).text[0] != completion:
            raise AssertionError("HTTP and gRPC differ")
        called = cls.chat(TOOL_QUESTION, tools=[TOOL], max_tokens=100)["choices"][0]["message"]
        (call,) = called["tool_calls"]
        answered = cls.content([
            {"role": "user", "content": TOOL_QUESTION}, called,
            {"role": "tool", "tool_call_id": call["id"], "content": TOOL_RESULT}], tools=[TOOL])
        return {
            "call": [call["function"]["name"], json.loads(call["function"]["arguments"])],
            "answered": answered,
            "chat": content, "streamed": content, "completion": completion,
            "usage": [usage["prompt_tokens"], usage["completion_tokens"]],
            "streamed_usage": [usage["prompt_tokens"], usage["completion_tokens"]],
            "stopped": content[:content.index(stop)], "stop": stop,
            "long": cls.content(LONG_QUESTION, model=LONG_MODEL),
            "models": sorted([MODEL, LONG_MODEL]),
            # As Vercel's ai writes a conversation into a prompt.
            "conversation": cls.post(
                "/v1/completions", model=MODEL, prompt=f"user:\n{PROMPT}\n\nassistant:\n",
                stop=["\nuser:"], temperature=0,
                max_tokens=MAX_TOKENS)["choices"][0]["text"],
        }

    def environment(self, **more):
        """Only what a client may need: nothing of this machine's configuration leads it elsewhere."""
        return {**{k: os.environ[k] for k in ("PATH", "LANG", "LD_LIBRARY_PATH") if k in os.environ},
                "HOME": str(self.folder), "TMPDIR": str(self.folder),
                "OPENAI_BASE_URL": self.url + "/v1", "OPENAI_API_KEY": KEY, "URL": self.url,
                "GRPC": self.gateway.address,
                "ASK": json.dumps({
                    "model": MODEL, "long_model": LONG_MODEL, "question": QUESTION,
                    "long_question": LONG_QUESTION, "prompt": PROMPT, "max_tokens": MAX_TOKENS,
                    "tool": TOOL, "tool_question": TOOL_QUESTION, "tool_result": TOOL_RESULT,
                    "stop": self.expected["stop"]}),
                # Their own searches of the internet.
                "LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_ANALYTICS": "false",
                "NO_COLOR": "1", **more}

    def run_program(self, *command, env=None, timeout=240, status=0):
        """stdout of a client that ends with `status`, which may be None for any; stderr as well
        where that is not success."""
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                             timeout=timeout, stdin=subprocess.DEVNULL, cwd=self.folder,
                             env=env or self.environment())
        if status is not None:
            self.assertEqual(run.returncode, status, run.stdout[-3000:] + run.stderr[-6000:])
        return run.stdout + (run.stderr if status else "")

    def check(self, *command, names=NAMES, **errors):
        """Runs a client that prints one JSON object: its answers named in `names` are those of
        plain HTTP, its errors have the words of `errors` in them, it has told nothing else, and
        afterwards nothing runs on."""
        result = json.loads(self.run_program(*command).strip().splitlines()[-1])
        told = result.pop("errors")
        self.assertEqual(result, {name: self.expected[name] for name in names.split()})
        self.assertEqual(set(told), set(errors))
        for name, words in errors.items():
            for word in (words,) if isinstance(words, str) else words:
                self.assertIn(word, told[name], name)
        self.assertNotIn("model_not_found", told.get("path", ""))
        self.wait_until_idle()

    def python(self, script, interpreter="python", **keywords):
        self.check(INSTALLED / interpreter / "bin/python", HERE / script, **keywords)

    def node(self, script, **keywords):
        # Modules are looked for beside the script.
        for path in HERE.glob("*.mjs"):
            shutil.copy(path, self.folder)
        modules = self.folder / "node_modules"
        if not modules.exists():
            modules.symlink_to(INSTALLED / "node/node_modules")
        self.check("node", self.folder / script, **keywords)
