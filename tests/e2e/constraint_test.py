#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that have to match a schema, a regular expression, a grammar or a choice: each does, and none
depends on what runs beside it, on how the worker computes, or on whether a worker dies on the way.

    constraint_test.py [--constraints=N] [--seed=N]    N random constraints
"""
import argparse
import concurrent.futures
import contextlib
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import typing
import unittest

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "chaos"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402
from traffic import make_request  # noqa: E402

OPTIONS = argparse.Namespace(constraints=40, seed=1)
WORDS = ["red", "green", "blue", "Mira", "Tom", "a b", "caf\u00e9", "\u4f60\u597d", "x\"y", "-"]
PLAIN = ("--threads=1", "--kv_blocks=640", "--speculation=off")
# Each differs from PLAIN in much that no answer may depend on.
OTHERS = {
    "drafts, 2 ranks": ("--threads=2", "--tensor_parallel=2", "--kv_blocks=640", "--speculation=lookup",
                        "--always_draft", "--max_prefill_chunk=7"),
    "4 ranks, small steps": ("--threads=4", "--tensor_parallel=4", "--kv_blocks=640", "--block_size=8",
                             "--max_batch_tokens=50"),
    "a small cache": ("--threads=1", "--kv_blocks=1100", "--block_size=1", "--speculation=lookup"),
}


def random_schema(rng, depth=0):
    kinds = ["integer", "number", "boolean", "null", "enum", "const", "string", "pattern"]
    kinds += ["object", "object", "array", "anyOf"] if depth < 3 else []
    if depth == 0:
        kinds = ["object", "object", "beside", "refs"]
    else:
        kinds.append("types")
    kind = rng.choice(kinds)
    if kind == "beside":
        # Alternatives beside what all of them share, as generators of schemas write them.
        names = rng.sample(["a", "b", "name", "list"], 3)
        return {"type": "object", "properties": {name: random_schema(rng, depth + 1) for name in names},
                "required": names[:1], "additionalProperties": False,
                "anyOf": [{"required": [names[1]]}, {"required": [names[2]]}]}
    if kind == "refs":
        low = rng.randrange(100)
        return {"$defs": {"count": {"type": "integer", "minimum": low, "maximum": 10 ** 4},
                          "item": random_schema(rng, depth + 1)},
                "type": "object", "additionalProperties": False, "required": ["one", "few"],
                "properties": {"one": {"$ref": "#/$defs/count", "description": "narrower", "maximum": low + 99},
                               "few": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 2}}}
    if kind == "types":
        return {"type": ["string", "null"], "enum": rng.sample([*WORDS, None, None, 7, True], 5) + [None]}
    if kind == "integer":
        low = rng.randrange(-50, 50)
        return {"type": "integer", "minimum": low, "maximum": low + rng.randrange(1000)}
    if kind == "number":
        return {"type": "number", "minimum": 0, "maximum": rng.choice([1, 10, 2.5])}
    if kind in ("boolean", "null"):
        return {"type": kind}
    if kind == "enum":
        return {"enum": rng.sample([*WORDS, 1, None, True], rng.randrange(1, 5))}
    if kind == "const":
        return {"const": rng.choice([*WORDS, 7, False])}
    if kind == "string":
        return {"type": "string", "minLength": rng.randrange(3), "maxLength": rng.randrange(3, 10)}
    if kind == "pattern":
        return {"type": "string", "pattern": f"^{random_regex(rng)}$"}
    if kind == "array":
        least = rng.randrange(3)
        return {"type": "array", "items": random_schema(rng, depth + 1), "minItems": least,
                "maxItems": least + rng.randrange(3)}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randrange(1, 3))]}
    names = rng.sample(["a", "b", "name", "list", "of what", "z\u00e9"], rng.randrange(1, 4))
    return {"type": "object", "properties": {name: random_schema(rng, depth + 1) for name in names},
            "required": [name for name in names if rng.random() < 0.7], "additionalProperties": False}


def random_regex(rng):
    """One that Python and Rust read alike."""
    def part():
        text = rng.choice(["[a-f]", "[0-9]", "(ab|c)", "x", " ", "[^a-z\"\\\\]", "(Mira|Tom)", "\\."])
        return text + rng.choice(["", "", "?", "{2}", "{1,3}", "{0,4}"])
    return "".join(part() for _ in range(rng.randrange(1, 6)))


class Constraint:
    """A random constraint, and what an answer to it has to be."""

    def __init__(self, number):
        rng = random.Random(OPTIONS.seed * 10000 + number)
        self.number = number
        self.kind = rng.choice(["json"] * 6 + ["regex"] * 4 + ["lark", "choice"])
        # A grammar is lines, each of which is one of two expressions.
        self.value = (random_schema(rng) if self.kind == "json" else random_regex(rng) if self.kind == "regex"
                      else [random_regex(rng), random_regex(rng)] if self.kind == "lark"
                      else rng.sample(WORDS, rng.randrange(1, 5)))
        request = make_request(number % 3, chat=False)
        self.request = pb.GenerateRequest(request_id=f"guided-{number}", text=request.text)
        if not self.request.text:
            self.request.text = "Mira says: "
        sampling = self.request.sampling
        sampling.seed = rng.randrange(1 << 32)
        sampling.temperature = rng.choice([0, 0.7, 1, 2])
        sampling.frequency_penalty = rng.choice([0, 0, 0.5])
        if rng.random() < 0.2:
            sampling.num_sequences = 2
        self.request.output.logprobs = rng.randrange(3)
        self.request.stopping.max_tokens = 160
        self.request.stopping.ignore_eos = rng.random() < 0.3
        if rng.random() < 0.3:
            self.request.stopping.min_tokens = 5
        if self.kind == "json":
            self.request.constraint.json_schema = json.dumps(self.value)
        elif self.kind == "regex":
            self.request.constraint.regex = self.value
        elif self.kind == "lark":
            self.request.constraint.lark = self.lark()
        else:
            self.request.constraint.choice.options.extend(self.value)

    @classmethod
    def of_many_sequences(cls, number):
        """Its sequences do not fit into a small cache together."""
        constraint = cls(number)
        constraint.kind, constraint.value = "regex", "[a-z .]{400}"
        constraint.request.constraint.regex = constraint.value
        constraint.request.sampling.temperature = 1
        constraint.request.sampling.num_sequences = 16
        return constraint

    def lark(self):
        return 'start: line "\\n" line\nline: ' + " | ".join(
            "/" + regex.replace("/", "\\/") + "/" for regex in self.value) + "\n"

    def why_not(self, text):
        """None if the text matches."""
        if self.kind == "lark":
            line = "|".join(self.value)
            return None if re.fullmatch(f"({line})\n({line})", text) else "no match"
        if self.kind == "choice":
            return None if text in self.value else "no option"
        if self.kind == "regex":
            return None if re.fullmatch(self.value, text) else "no match"
        try:
            jsonschema.Draft202012Validator(self.value).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            return str(error)
        return None

    def http(self):
        """Members of /v1/completions that ask for the same; the ways to write it take turns."""
        own = {"json": [{"response_format": {"type": "json_schema", "json_schema": {
                            "name": "n", "schema": self.value, "strict": True}}},
                        {"structured_outputs": {"json": self.value}},
                        {"guided_json": json.dumps(self.value)}, {"json_schema": self.value}],
               "regex": [{"structured_outputs": {"regex": self.value}}, {"guided_regex": self.value},
                         {"regex": self.value}, {"response_format": {"type": "regex", "value": self.value}}],
               "lark": [{"structured_outputs": {"grammar": self.lark()}}, {"guided_grammar": self.lark()}],
               "choice": [{"structured_outputs": {"choice": self.value}}, {"guided_choice": self.value}]}
        r = self.request
        spellings = own[self.kind]
        return {"prompt": r.text, "seed": r.sampling.seed, "temperature": r.sampling.temperature,
                "frequency_penalty": r.sampling.frequency_penalty, "n": r.sampling.num_sequences or 1,
                "max_tokens": r.stopping.max_tokens, "min_tokens": r.stopping.min_tokens,
                "ignore_eos": r.stopping.ignore_eos, **spellings[self.number % len(spellings)]}


def neighbours():
    """Requests without a constraint."""
    requests = [make_request(kind, chat=False) for kind in range(12)]
    for i, request in enumerate(requests):
        request.request_id = f"neighbour-{i}"
        request.sampling.seed = i
    return requests


@contextlib.contextmanager
def worker(flags, model=fleet.DEMO_MODEL):
    program = fleet.start_worker(model, *flags)
    try:
        client = fleet.Client(program.address)
        client.wait_for_model()
        yield program, client
    finally:
        program.kill()


def together(client, requests, number=52, on_response=None):
    with concurrent.futures.ThreadPoolExecutor(number) as pool:
        return list(pool.map(lambda request: client.generate(request, on_response=on_response), requests))


class DyingFleet:
    """A gateway and three workers, two of which are killed: one after every `between` responses."""

    def __init__(self, between, *flags, model=fleet.DEMO_MODEL):
        self.workers = [fleet.start_worker(model, *own, *flags)
                        for own in (PLAIN, OTHERS["drafts, 2 ranks"], OTHERS["a small cache"])]
        self.gateway = fleet.start_gateway(self.workers)
        self.client = fleet.Client(self.gateway.address)
        self.victims, self._between, self._seen, self._lock = self.workers[:2], between, 0, threading.Lock()

    def answers(self, requests):
        return together(self.client, requests, 32, self._on_response)

    def kill(self):
        for program in (self.gateway, *self.workers):
            program.kill()

    def _on_response(self, _):
        with self._lock:
            self._seen += 1
            if self.victims and self._seen % self._between == 0:
                self.victims.pop().kill()


class ConstraintTest(unittest.TestCase):
    model = fleet.DEMO_MODEL
    share = 1  # of the constraints
    is_pressed = True  # so many that a small cache preempts some, and some repeat themselves

    @classmethod
    def setUpClass(cls):
        """Every request alone on a worker of its own kind: what all others must equal."""
        cls.constraints = [Constraint(i) for i in range(OPTIONS.constraints // cls.share)]
        cls.constraints.append(Constraint.of_many_sequences(OPTIONS.constraints))
        cls.requests = [c.request for c in cls.constraints]
        cls.neighbours = neighbours()
        with worker(PLAIN, cls.model) as (_, client):
            cls.expected = [client.generate(r).comparable() for r in cls.requests]
            cls.expected_neighbours = [client.generate(r).comparable() for r in cls.neighbours]

    def test_every_answer_that_is_finished_matches(self):
        finished = 0
        for constraint, answer in zip(self.constraints, self.expected):
            for index, text in answer["text"].items():
                if answer["finish"][index] != pb.FINISH_REASON_STOP:
                    continue
                finished += 1
                with self.subTest(constraint=constraint.value, text=text):
                    self.assertIsNone(constraint.why_not(text))
        print(f"{finished} finished answers of {len(self.constraints)} requests", flush=True)
        self.assertGreater(finished, 0.7 * len(self.constraints))

    def test_answers_do_not_depend_on_what_runs_beside_them(self):
        for name, flags in {"plain": PLAIN, **OTHERS}.items():
            with self.subTest(worker=name), worker(flags, self.model) as (program, client):
                # They arrive mixed.
                requests = list(enumerate(self.requests + self.neighbours))
                random.Random(OPTIONS.seed).shuffle(requests)
                answers = dict(zip((i for i, _ in requests),
                                   together(client, [request for _, request in requests])))
                for i, expected in enumerate(self.expected + self.expected_neighbours):
                    self.assertEqual(answers[i].comparable(), expected, i)
                page = fleet.scrape(program.metrics_address)
                value = lambda metric: sum(v for s, v in page.items() if s.startswith(metric + "{"))
                if self.is_pressed and "--block_size=1" in flags:
                    self.assertGreater(value("continuo_preemptions_total"), 0)
                if self.is_pressed and "--speculation=lookup" in flags:
                    self.assertGreater(value("continuo_accepted_draft_tokens_total"), 0)
                self.assertGreater(value("continuo_grammar_compiles_total"), 0)

    def test_a_continuation_goes_on_behind_every_id(self):
        with worker(OTHERS["drafts, 2 ranks"], self.model) as (_, client):
            for constraint, expected in list(zip(self.constraints, self.expected))[:6]:
                responses = client.generate(constraint.request).responses
                for cut in range(len(responses)):
                    rest = pb.GenerateRequest()
                    rest.CopyFrom(constraint.request)
                    fleet.continue_after(rest, responses[:cut])
                    answer = fleet.Answer(responses[:cut] + client.generate(rest).responses)
                    self.assertEqual(answer.comparable(), expected, (constraint.value, cut))

    def test_a_worker_that_dies_changes_nothing(self):
        dying = DyingFleet(60, model=self.model)
        self.addCleanup(dying.kill)
        dying.client.wait_for_model(3)
        answers = dying.answers(self.requests)
        for answer, expected in zip(answers, self.expected):
            self.assertEqual(answer.comparable(), expected)
        migrations = sum(answer.summary.migrations for answer in answers)
        print(f"{migrations} migrations", flush=True)
        self.assertEqual(dying.victims, [])
        self.assertGreater(migrations, 0)
        self.assertFalse(any(answer.summary.inexact for answer in answers))


class RandomModelTest(ConstraintTest):
    """The same of a model that says anything: only the masks give its answers a form."""
    share = 4
    is_pressed = False

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        config = pathlib.Path(folder.name) / "config.json"
        demo = json.loads((fleet.DEMO_MODEL / "config.json").read_text())
        config.write_text(json.dumps({
            "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,
            "max_position_embeddings": 1024, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": True,
            "vocab_size": demo["vocab_size"], "eos_token_id": demo["eos_token_id"], "torch_dtype": "float32"}))
        cls.model = pathlib.Path(folder.name) / "random"
        subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={cls.model}", "--seed=3",
                        "--dtype=fp32", f"--tokenizer={fleet.DEMO_MODEL}"], check=True, stdout=subprocess.DEVNULL)
        super().setUpClass()


def calls_of(responses):
    """[(name, arguments)] of the first sequence's calls."""
    calls = []
    for delta in (d for r in responses for d in r.deltas):
        for piece in delta.tool_calls:
            if piece.index == len(calls):
                calls.append([piece.name, ""])
            calls[piece.index][1] += piece.arguments
    return [tuple(call) for call in calls]


class CallsTest(unittest.TestCase):
    """Calls that have to be made. The demo model is told to write them as Hermes does."""
    FORMAT = ("--tool_format=hermes",)

    def requests(self):
        """[(request, {name: schema})]"""
        requests = []
        for number in range(16):
            rng = random.Random(number)
            schemas = {name: random_schema(rng) for name in ("weather", "add numbers", "f")[:1 + number % 3]}
            request = pb.GenerateRequest(request_id=f"call-{number}")
            request.conversation.messages.add(role="user", content="Who is Mira?")
            for name, schema in schemas.items():
                request.conversation.tools.add(name=name, parameters=json.dumps(schema))
            choice = request.conversation.tool_choice
            choice.mode = pb.ToolChoice.MODE_REQUIRED
            choice.single_call = True
            if number % 4 == 3:
                choice.name = rng.choice(sorted(schemas))
            request.sampling.seed = number
            request.sampling.temperature = (0, 1, 1.5)[number % 3]
            request.stopping.max_tokens = 300
            requests.append((request, schemas))
        return requests

    def test_every_call_is_whole_and_its_arguments_match(self):
        requests = self.requests()
        with worker(PLAIN + self.FORMAT) as (_, client):
            whole = [client.generate(request) for request, _ in requests]
        finished = 0
        for (request, schemas), answer in zip(requests, whole):
            if answer.finish[0] == pb.FINISH_REASON_LENGTH:
                continue
            finished += 1
            self.assertEqual(answer.finish[0], pb.FINISH_REASON_TOOL_CALLS)
            self.assertEqual(answer.text[0], "")
            (name, arguments), = calls_of(answer.responses)
            self.assertIn(name, [request.conversation.tool_choice.name] if
                          request.conversation.tool_choice.name else schemas)
            jsonschema.validate(json.loads(arguments), schemas[name])
        print(f"{finished} calls of {len(requests)} requests", flush=True)
        self.assertGreater(finished, 0.7 * len(requests))

        # The same where workers die.
        dying = DyingFleet(40, *self.FORMAT)
        self.addCleanup(dying.kill)
        model = dying.client.wait_for_model(3)
        self.assertEqual(model.response_format, "hermes")
        self.assertIn(pb.CAPABILITY_REQUIRED_CALLS, model.capabilities)
        for answer, expected in zip(dying.answers([request for request, _ in requests]), whole):
            self.assertEqual(answer.comparable(), expected.comparable())
            self.assertEqual(calls_of(answer.responses), calls_of(expected.responses))
        self.assertEqual(dying.victims, [])
        self.check_http(dying.gateway, [r[0] for r in requests], whole)

    def check_http(self, gateway, requests, whole):
        import openai
        client = openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none", max_retries=0)
        for request, expected in list(zip(requests, whole))[:8]:
            name = request.conversation.tool_choice.name
            body = {"model": "demo-model", "messages": [{"role": "user", "content": "Who is Mira?"}],
                    "tools": [{"type": "function", "function": {
                        "name": t.name, "parameters": json.loads(t.parameters)}} for t in request.conversation.tools],
                    "tool_choice": {"type": "function", "function": {"name": name}} if name else "required",
                    "parallel_tool_calls": False, "seed": request.sampling.seed, "max_tokens": 300,
                    "temperature": request.sampling.temperature}
            choice = client.chat.completions.create(**body).choices[0]
            calls = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls or []]
            self.assertEqual(calls, calls_of(expected.responses))
            if expected.finish[0] == pb.FINISH_REASON_TOOL_CALLS:
                self.assertEqual(choice.finish_reason, "tool_calls")
            streamed = []
            for event in client.chat.completions.create(stream=True, **body):
                for piece in (event.choices[0].delta.tool_calls or [] if event.choices else []):
                    if piece.index == len(streamed):
                        streamed.append([piece.function.name, ""])
                    streamed[piece.index][1] += piece.function.arguments or ""
            self.assertEqual([tuple(call) for call in streamed], calls)


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, *PLAIN)
        cls.gateway = fleet.start_gateway([cls.worker])
        cls.client = fleet.Client(cls.gateway.address)
        cls.model = cls.client.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, cls.worker):
            program.kill()

    def post(self, path, **body):
        connection = http.client.HTTPConnection(self.gateway.http_address, timeout=120)
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        result = response.status, response.read().decode()
        connection.close()
        return result

    def test_answers_over_http_are_those_over_grpc_streamed_or_not(self):
        for number in range(16):
            constraint = Constraint(number)
            body = constraint.http()
            expected = self.client.generate(constraint.request)
            status, text = self.post("/v1/completions", **body)
            self.assertEqual(status, 200, text)
            choices = {c["index"]: c for c in json.loads(text)["choices"]}
            self.assertEqual({i: c["text"] for i, c in choices.items()}, expected.text)
            reasons = {pb.FINISH_REASON_STOP: "stop", pb.FINISH_REASON_LENGTH: "length"}
            self.assertEqual({i: c["finish_reason"] for i, c in choices.items()},
                             {i: reasons[f] for i, f in expected.finish.items()})
            status, text = self.post("/v1/completions", stream=True, **body)
            self.assertEqual(status, 200, text)
            streamed = {}
            for line in text.split("\n"):
                if line.startswith("data: {"):
                    for choice in json.loads(line[6:])["choices"]:
                        streamed[choice["index"]] = streamed.get(choice["index"], "") + choice["text"]
            self.assertEqual(streamed, expected.text)

    def test_chats_have_json(self):
        schema = {"type": "object", "properties": {"name": {"enum": ["Mira", "Tom"]},
                                                   "age": {"type": "integer", "minimum": 1, "maximum": 99}},
                  "required": ["name", "age"], "additionalProperties": False}
        for response_format in ({"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
                                {"type": "json_object", "schema": schema}):
            for temperature in (0, 1.5):
                status, text = self.post("/v1/chat/completions", temperature=temperature, seed=1, max_tokens=200,
                                         messages=[{"role": "user", "content": "Who is Mira?"}],
                                         response_format=response_format)
                self.assertEqual(status, 200, text)
                choice = json.loads(text)["choices"][0]
                self.assertEqual(choice["finish_reason"], "stop")
                jsonschema.validate(json.loads(choice["message"]["content"]), schema)

    def test_what_cannot_be_obeyed_is_named_as_it_was_written(self):
        # (members, param, what the message has)
        refused = [
            ({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {
                "type": "object", "properties": {"a": {"not": {"type": "string"}}}}}}},
             "response_format.json_schema.schema", "not"),
            ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", ""),
            ({"guided_regex": "("}, "guided_regex", ""),
            ({"guided_regex": "((((a{1,100}){1,100}){1,100}){1,100})"}, "guided_regex", "too complex"),
            ({"guided_grammar": "start: ("}, "guided_grammar", ""),
            ({"guided_grammar": "start: start start"}, "guided_grammar", "no answer obeys it"),
            ({"structured_outputs": {"grammar": "root ::= \"a\""}}, "structured_outputs.grammar", "Lark"),
            ({"guided_choice": []}, "guided_choice", "is empty"),
            ({"guided_choice": [""]}, "guided_choice", "empty answer"),
            ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice", "together with guided_regex"),
            ({"regex": "a" * 300000}, "regex", "262144"),
        ]
        for members, param, message in refused:
            for path, prompt in (("/v1/completions", {"prompt": "a"}), (
                    "/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
                status, text = self.post(path, **prompt, **members)
                error = json.loads(text)["error"]
                self.assertEqual((status, error["param"]), (400, param), error)
                self.assertIn(message, error["message"])
                self.assertTrue(error["message"].startswith(param + ": "), error["message"])

    def test_the_model_tells_what_it_can_do(self):
        self.assertIn(pb.CAPABILITY_CONSTRAINTS, self.model.capabilities)
        self.assertNotEqual(self.model.response_format, "")

    def test_openai_parses_what_comes(self):
        import openai
        import pydantic

        class Person(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=10)
            age: int = pydantic.Field(ge=0, le=150)
            friends: list[typing.Literal["Ada", "Leo"]] = pydantic.Field(max_length=2)

        client = openai.OpenAI(base_url=f"http://{self.gateway.http_address}/v1", api_key="none",
                               max_retries=0)
        for seed in range(3):
            answer = client.chat.completions.parse(
                model=self.model.name, seed=seed, max_tokens=700, response_format=Person,
                messages=[{"role": "user", "content": "Who is Mira?"}])
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            self.assertIsInstance(answer.choices[0].message.parsed, Person)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--constraints", type=int, default=OPTIONS.constraints)
    parser.add_argument("--seed", type=int, default=OPTIONS.seed)
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
