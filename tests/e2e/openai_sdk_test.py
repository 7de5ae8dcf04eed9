#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stock OpenAI SDKs for Python and Node and plain curl, against a real gateway and worker."""
import concurrent.futures
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
import openai  # noqa: E402
from fleet import pb  # noqa: E402

MODEL = "demo-model"
QUESTION = "Mira lives in Oslo and plays the violin. Where does Mira live?"
MESSAGES = [{"role": "user", "content": QUESTION}]
LONG = {"prompt": "Mira lives", "max_tokens": 900, "extra_body": {"ignore_eos": True}}
TOOLS = [{"type": "function", "function": {
    "name": "find_person", "description": "Tells where somebody is.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}]
NODE_SDK = fleet.ROOT / "build/npm/node_modules/openai"


class ServiceTest(unittest.TestCase):
    """One gateway and one worker."""

    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
        cls.gateway = fleet.start_gateway([cls.worker])
        cls.url = f"http://{cls.gateway.http_address}"
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model()
        cls.client = openai.OpenAI(base_url=cls.url + "/v1", api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()

    def wait_until_idle(self):
        """Nothing runs or waits, and no stream is open."""
        def idle():
            worker = fleet.scrape(self.worker.metrics_address)
            gateway = fleet.scrape(self.gateway.metrics_address)
            label = f'{{model="{MODEL}"}}'
            return (worker[f"continuo_running_requests{label}"] == 0
                    and worker[f"continuo_waiting_requests{label}"] == 0
                    and worker[f"continuo_kv_blocks_unaccounted{label}"] == 0
                    and worker[f"continuo_kv_blocks_used{label}"] == 0
                    and gateway["continuo_gateway_open_streams"] == 0)
        fleet.wait_until(idle, "idle")


class OpenAiTest(ServiceTest):
    def grpc_chat(self):
        request = pb.GenerateRequest()
        message = request.conversation.messages.add()
        message.role, message.content = "user", QUESTION
        return request

    # The answer is the same as over gRPC.

    def test_a_chat_is_that_of_grpc(self):
        request = self.grpc_chat()
        request.sampling.temperature, request.sampling.seed = 0.9, 12345
        request.stopping.max_tokens = 40
        request.output.logprobs = 3
        expected = self.grpc.generate(request)
        ask = dict(model=MODEL, messages=MESSAGES, temperature=0.9, seed=12345, max_tokens=40,
                   logprobs=True, top_logprobs=3)
        answer = self.client.chat.completions.create(**ask)
        choice = answer.choices[0]
        self.assertEqual(choice.message.content, expected.text[0])
        self.assertEqual(choice.message.role, "assistant")
        self.assertEqual(answer.model, MODEL)
        self.assertEqual(answer.usage.prompt_tokens, expected.summary.usage.prompt_tokens)
        self.assertEqual(answer.usage.completion_tokens, len(expected.ids[0]))
        self.assertEqual(answer.usage.total_tokens,
                         answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.system_fingerprint, expected.accepted[0].fingerprint)
        tokens = choice.logprobs.content
        self.assertEqual([bytes(t.bytes) for t in tokens], [l.token or l.special_token for l in expected.logprobs[0]])
        for ours, theirs in zip(tokens, expected.logprobs[0]):
            self.assertAlmostEqual(ours.logprob, theirs.logprob, places=5)
            self.assertEqual(len(ours.top_logprobs), 3)

        text, reasons, tokens = "", [], []
        for chunk in self.client.chat.completions.create(stream=True, **ask):
            self.assertEqual(chunk.object, "chat.completion.chunk")
            self.assertIsNone(chunk.usage)
            delta = chunk.choices[0]
            text += delta.delta.content or ""
            tokens += delta.logprobs.content if delta.logprobs else []
            if delta.finish_reason:
                reasons.append(delta.finish_reason)
        self.assertEqual(text, expected.text[0])
        self.assertEqual(reasons, [choice.finish_reason])
        self.assertEqual([bytes(t.bytes) for t in tokens], [l.token or l.special_token for l in expected.logprobs[0]])

    def test_completions_are_those_of_grpc(self):
        prompts = ["Mira lives", "Tom plays the"]
        expected = []
        for prompt in prompts:
            request = pb.GenerateRequest(text=prompt)
            request.sampling.seed, request.sampling.num_sequences = 7, 2
            request.stopping.max_tokens = 12
            answer = self.grpc.generate(request)
            expected += [answer.text[0], answer.text[1]]
        ask = dict(model=MODEL, prompt=prompts, seed=7, n=2, max_tokens=12)
        answer = self.client.completions.create(**ask)
        self.assertEqual([c.text for c in answer.choices], expected)
        self.assertEqual([c.index for c in answer.choices], [0, 1, 2, 3])
        texts = ["", "", "", ""]
        usage = None
        for chunk in self.client.completions.create(
                stream=True, stream_options={"include_usage": True}, **ask):
            for choice in chunk.choices:
                texts[choice.index] += choice.text
            usage = chunk.usage or usage
        self.assertEqual(texts, expected)
        self.assertEqual(usage.completion_tokens, answer.usage.completion_tokens)
        self.assertEqual(usage.prompt_tokens, answer.usage.prompt_tokens)

    def test_token_ids_are_a_prompt(self):
        ids = list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text="Mira lives")).token_ids)
        by_text, by_ids, both = (
            self.client.completions.create(model=MODEL, prompt=p, temperature=0, max_tokens=8)
            for p in ("Mira lives", ids, [ids, ids]))
        self.assertEqual(by_ids.choices[0].text, by_text.choices[0].text)
        self.assertEqual([c.text for c in both.choices], [by_text.choices[0].text] * 2)

    def test_a_stop_string_ends_the_answer_and_is_not_in_it(self):
        free = self.client.completions.create(model=MODEL, prompt="Mira lives", temperature=0,
                                              max_tokens=20).choices[0].text
        stop = free[5:9]
        for value in (stop, [stop, "never to be seen"]):
            choice = self.client.completions.create(model=MODEL, prompt="Mira lives", temperature=0,
                                                    max_tokens=20, stop=value).choices[0]
            self.assertEqual((choice.text, choice.finish_reason), (free[:free.index(stop)], "stop"))

    def test_penalties_bias_and_extensions_arrive(self):
        def text(**more):
            return self.client.completions.create(
                model=MODEL, prompt="Mira lives", seed=3, max_tokens=16, **more).choices[0].text
        plain = text()
        token = self.grpc.inference.Tokenize(
            pb.TokenizeRequest(text=" in", omit_special_tokens=True)).token_ids[0]
        biased = self.client.completions.create(
            model=MODEL, prompt="Mira lives", max_tokens=3, logprobs=0,
            logit_bias={str(token): 100}, temperature=0).choices[0]
        self.assertEqual(biased.text, " in in in")
        self.assertEqual(text(extra_body={"top_k": 1}), text(temperature=0))
        self.assertEqual(text(extra_body={"min_p": 1.0}), text(temperature=0))
        self.assertEqual(text(top_p=0.000001), text(temperature=0))
        request = pb.GenerateRequest(text="Mira lives")
        request.sampling.seed, request.stopping.max_tokens = 3, 16
        request.sampling.presence_penalty, request.sampling.frequency_penalty = 1.5, -0.5
        request.sampling.repetition_penalty = 1.25
        self.assertEqual(text(presence_penalty=1.5, frequency_penalty=-0.5,
                              extra_body={"repetition_penalty": 1.25}),
                         self.grpc.generate(request).text[0])
        self.assertTrue(plain)

    def test_echo_and_cached_tokens(self):
        prompt = "Mira lives in Oslo and plays the violin. " * 8
        for _ in range(2):
            answer = self.client.completions.create(model=MODEL, prompt=prompt, echo=True,
                                                    max_tokens=0)
        self.assertEqual(answer.choices[0].text, prompt)
        self.assertEqual(answer.usage.completion_tokens, 0)
        self.assertGreater(answer.usage.prompt_tokens_details.cached_tokens, 0)

    def test_models(self):
        self.assertEqual([m.id for m in self.client.models.list()], [MODEL])
        self.assertEqual(self.client.models.retrieve(MODEL).id, MODEL)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("another")

    # Errors.

    def test_errors_are_the_sdks_own(self):
        def ask(**more):
            return self.client.chat.completions.create(**{"model": MODEL, "messages": MESSAGES, **more})
        for param, more in {
                "temperature": {"temperature": -1}, "top_p": {"top_p": 2}, "n": {"n": 0},
                "stop": {"stop": ["x"] * 17}, "tools[0].function": {"tools": [{}]},
                "response_format.type": {"response_format": {"type": "python"}},
                "messages": {"messages": []},
                "logit_bias": {"logit_bias": {"99999999": 1}}}.items():
            for stream in (False, True):
                with self.subTest(param=param), self.assertRaises(openai.BadRequestError) as caught:
                    ask(stream=stream, **more)
                self.assertEqual(caught.exception.param, param)
        with self.assertRaises(openai.NotFoundError) as caught:
            ask(model="another")
        self.assertEqual(caught.exception.code, "model_not_found")
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(messages=[{"role": "user", "content": "word " * 2000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")

    def test_the_request_id_comes_back(self):
        answer = self.client.chat.completions.with_raw_response.create(
            model=MODEL, messages=MESSAGES, max_tokens=1, extra_headers={"x-request-id": "mine"})
        self.assertEqual(answer.headers["x-request-id"], "mine")
        self.assertRegex(answer.parse().id, "^chatcmpl-req-[0-9a-f]{32}$")

    def test_calls_of_one_request_id_run_beside_each_other(self):
        headers = {"x-request-id": "one page"}
        stream = self.client.completions.create(model=MODEL, stream=True, extra_headers=headers,
                                                **LONG)
        next(iter(stream))
        answer = self.client.completions.create(model=MODEL, prompt="a", max_tokens=1,
                                                extra_headers=headers)
        self.assertEqual(answer.usage.completion_tokens, 1)
        stream.close()
        self.wait_until_idle()

    # Clients that leave.

    def test_a_client_that_leaves_gives_everything_back(self):
        streams = [self.client.completions.create(model=MODEL, stream=True, **LONG)
                   for _ in range(4)]
        for stream in streams:
            next(iter(stream))
        for stream in streams:
            stream.close()
        self.wait_until_idle()

    def test_a_client_that_does_not_wait_for_its_answer_gives_everything_back(self):
        impatient = self.client.with_options(timeout=0.05)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            asked = [pool.submit(impatient.completions.create, model=MODEL, n=8, **LONG)
                     for _ in range(4)]
            for answer in asked:
                self.assertIsInstance(answer.exception(), openai.APITimeoutError)
        self.wait_until_idle()

    def test_many_at_once(self):
        def ask(i):
            ask = dict(model=MODEL, prompt=f"{i} Mira lives", seed=i, max_tokens=12)
            whole = self.client.completions.create(**ask).choices[0].text
            pieces = [c.choices[0].text for c in self.client.completions.create(stream=True, **ask)]
            return whole == "".join(pieces)
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            self.assertTrue(all(pool.map(ask, range(48))))

    # Other clients.

    def curl(self, path, *arguments):
        return subprocess.run(["curl", "-sS", "--max-time", "60", self.url + path, *arguments],
                              check=True, capture_output=True, text=True).stdout

    def test_curl(self):
        body = {"messages": MESSAGES, "temperature": 0, "max_tokens": 20}
        answer = json.loads(self.curl("/v1/chat/completions", "-d", json.dumps(body)))
        text = answer["choices"][0]["message"]["content"]
        events = self.curl("/v1/chat/completions", "-N", "-d", json.dumps({**body, "stream": True}))
        lines = [l[6:] for l in events.split("\n") if l.startswith("data: ")]
        self.assertEqual(lines[-1], "[DONE]")
        pieces = [json.loads(l)["choices"][0]["delta"].get("content", "") for l in lines[:-1]]
        self.assertEqual("".join(pieces), text)
        # curl sends `Expect: 100-continue` before bodies over 1 MiB.
        large = json.dumps({**body, "metadata": {"note": "x" * (2 << 20)}})
        answer = subprocess.run(["curl", "-sS", "-d", "@-", self.url + "/v1/chat/completions"],
                                input=large, check=True, capture_output=True, text=True).stdout
        self.assertEqual(json.loads(answer)["choices"][0]["message"]["content"], text)
        self.assertEqual(self.curl("/healthz"), "ok\n")
        self.assertEqual(self.curl("/readyz"), "ready\n")
        self.assertIn("continuo_gateway_requests_total", self.curl("/metrics"))


class NodeTest(ServiceTest):
    @unittest.skipUnless(NODE_SDK.is_dir(), "the Node SDK comes with scripts/setup.sh --all")
    def test_node(self):
        expected = self.client.chat.completions.create(model=MODEL, messages=MESSAGES,
                                                       temperature=0, max_tokens=20)
        script = pathlib.Path(__file__).with_name("openai_node.js")
        run = subprocess.run(["node", script], capture_output=True, text=True, timeout=120,
                             env={**os.environ, "NODE_PATH": str(NODE_SDK.parent),
                                  "OPENAI_BASE_URL": self.url + "/v1", "OPENAI_API_KEY": "none"})
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(run.stdout)
        content = expected.choices[0].message.content
        self.assertEqual(result["whole"], content)
        self.assertEqual(result["streamed"], content)
        self.assertEqual(result["usage"]["total_tokens"], expected.usage.total_tokens)
        self.assertEqual(result["models"], [MODEL])
        self.assertEqual(result["error"], {"name": "BadRequestError", "status": 400,
                                           "param": "temperature"})
        self.wait_until_idle()


class LifecycleTest(unittest.TestCase):
    """Gateways and workers that end while HTTP clients stream."""

    def setUp(self):
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.kill()

    def start(self, num_workers, *flags):
        workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
                   for _ in range(num_workers)]
        gateway = fleet.start_gateway(workers, *flags)
        self.programs += [gateway, *workers]
        fleet.Client(gateway.address).wait_for_model(num_workers)
        client = openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none",
                               max_retries=0)
        return client, gateway, workers

    def test_a_worker_killed_mid_stream_is_not_noticed(self):
        client, _, workers = self.start(2)
        ask = dict(model=MODEL, seed=5, stream=True, **LONG)
        expected = "".join(c.choices[0].text for c in client.completions.create(**ask))
        streams = [iter(client.completions.create(**ask)) for _ in range(4)]
        texts = [next(stream).choices[0].text for stream in streams]
        workers[0].signal(signal.SIGKILL)
        for i, stream in enumerate(streams):
            texts[i] += "".join(chunk.choices[0].text for chunk in stream)
        self.assertEqual(texts, [expected] * 4)

    def test_a_gateway_that_ends_lets_streams_finish(self):
        client, gateway, _ = self.start(1)
        ask = dict(model=MODEL, seed=5, stream=True, **LONG)
        expected = "".join(c.choices[0].text for c in client.completions.create(**ask))
        stream = iter(client.completions.create(**ask))
        text = next(stream).choices[0].text
        gateway.signal(signal.SIGTERM)
        gateway.wait_for_log("draining")
        with self.assertRaises(openai.APIConnectionError):
            openai.OpenAI(base_url=client.base_url, api_key="none",
                          max_retries=0).models.list()
        text += "".join(chunk.choices[0].text for chunk in stream)
        self.assertEqual(text, expected)
        self.assertEqual(gateway.process.wait(30), 0)

    def test_what_is_left_at_the_end_of_the_grace_ends_with_an_error_event(self):
        client, gateway, _ = self.start(1, "--drain_grace=10ms")
        stream = iter(client.completions.create(model=MODEL, stream=True, n=128, **LONG))
        next(stream)
        gateway.signal(signal.SIGTERM)
        with self.assertRaises(openai.APIError) as caught:
            for _ in stream:
                pass
        self.assertEqual(caught.exception.code, "continue")
        self.assertEqual(gateway.process.wait(30), 0)

    def test_without_a_worker_it_is_unavailable(self):
        gateway = fleet.start_gateway(f"127.0.0.1:{fleet.free_port()}", "--no_worker_wait=100ms")
        self.programs.append(gateway)
        client = openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none",
                               max_retries=0)
        with self.assertRaises(openai.InternalServerError) as caught:
            client.completions.create(model=MODEL, prompt="x")
        self.assertEqual(caught.exception.status_code, 503)
        self.assertEqual(caught.exception.response.headers["retry-after"], "1")
        self.assertNotIn("127.0.0.1", str(caught.exception))

    def test_a_key_is_needed_where_there_are_keys(self):
        import tempfile
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("somebody 0123456789abcdef0123\n")
            keys.flush()
            gateway = fleet.start_gateway(f"127.0.0.1:{fleet.free_port()}",
                                          f"--api_keys_file={keys.name}")
        self.programs.append(gateway)
        url = f"http://{gateway.http_address}/v1"
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
        right = openai.OpenAI(base_url=url, api_key="0123456789abcdef0123", max_retries=0)
        self.assertEqual(list(right.models.list()), [])


if __name__ == "__main__":
    unittest.main()
