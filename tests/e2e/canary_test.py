#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients' secrets are in no log, metric or error of gateway or worker, and errors disclose nothing
of the machines: a word goes through a real fleet in every way that fails, and is searched for."""
import json
import pathlib
import re
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402
from google.rpc import status_pb2  # noqa: E402

CANARY = "Kanarienvogel"
TEXT = f"{CANARY} lives in Oslo. "
KEY = f"key-of-{CANARY}-0123"
WAIT_S = 60
# Patterns of a machine's secrets: addresses, files, source lines.
MACHINE = re.compile(r"\d+\.\d+\.\d+\.\d+|localhost|/(tmp|home|work|usr|proc|root)/|demo-model/"
                     r"|\.(cc|h|rs|py|json|safetensors)\b|ipv[46]:")


def generate(change=None):
    request = pb.GenerateRequest(text=TEXT)
    request.stopping.max_tokens = 5
    if change:
        change(request)
    return request


def chat(*messages, **fields):
    request = generate()
    for role, content in messages:
        request.conversation.messages.add(role=role, content=content)
    for name, value in fields.items():
        setattr(request.conversation, name, value)
    return request


def bad_requests():
    """(what, request of Generate), each refused by gateway or worker but for the last few."""
    yield "temperature", generate(lambda r: setattr(r.sampling, "temperature", -3))
    yield "top_p", generate(lambda r: setattr(r.sampling, "top_p", 7))
    yield "bias", generate(lambda r: r.sampling.logit_bias.update({10**6: 1}))
    yield "stop id", generate(lambda r: r.stopping.token_ids.append(10**6))
    yield "empty stop", generate(lambda r: r.stopping.strings.extend([CANARY, ""]))
    yield "long stop", generate(lambda r: r.stopping.strings.append(CANARY * 30))
    yield "many stops", generate(lambda r: r.stopping.strings.extend([CANARY] * 40))
    yield "min over max", generate(lambda r: setattr(r.stopping, "min_tokens", 9))
    yield "logprobs", generate(lambda r: setattr(r.output, "logprobs", 99))
    yield "too long", generate(lambda r: setattr(r, "text", TEXT * 2000))
    yield "far too long", generate(lambda r: setattr(r, "text", TEXT * 100_000))
    yield "prompt and answer too long", generate(
        lambda r: setattr(r.stopping, "max_tokens", 1 << 30))
    yield "token id", generate(lambda r: r.token_ids.ids.append(10**7))
    yield "no token ids", generate(lambda r: r.token_ids.SetInParent())
    yield "role", chat((CANARY, TEXT))
    yield "order", chat(("assistant", TEXT), ("assistant", TEXT))
    yield "no message", chat()
    yield "arguments", chat(("user", TEXT), template_arguments="{" + CANARY)
    yield "arguments of another type", chat(("user", TEXT), template_arguments=f'["{CANARY}"]')
    tools = chat(("user", TEXT))
    tools.conversation.tools.add(name=CANARY, parameters="{" + CANARY)
    yield "tools", tools
    yield "salt", generate(lambda r: setattr(r.cache, "salt", CANARY * 1000))
    yield "collect", generate(lambda r: (setattr(r.output, "collect", True),
                                         setattr(r.output, "progress", True)))
    continued = generate()
    continued.continuation.received.deltas.add(index=0, text=TEXT, token_ids=[10**7])
    yield "continuation", continued
    yield "model", generate(lambda r: setattr(r, "model", "another"))
    yield "stopped", generate(lambda r: r.stopping.strings.append(CANARY))
    yield "salted", generate(lambda r: setattr(r.cache, "salt", CANARY))


def bad_constraints():
    """Refused with errors that quote them: only their client sees these."""
    yield "regex", generate(lambda r: setattr(r.constraint, "regex", f"({CANARY}"))
    yield "schema", generate(lambda r: setattr(r.constraint, "json_schema", "{" + CANARY))
    yield "keyword", generate(lambda r: setattr(
        r.constraint, "json_schema", json.dumps({"properties": {CANARY: {"not": {}}}})))
    yield "lark", generate(lambda r: setattr(r.constraint, "lark", CANARY))


def bad_bodies():
    """(what, body) for the HTTP interface."""
    message = {"role": "user", "content": TEXT}
    good = {"model": "demo-model", "messages": [message], "max_tokens": 5}
    yield "good", good
    for name, value in {"temperature": CANARY, "stop": {CANARY: 1}, "n": CANARY, "logit_bias": CANARY,
                        "response_format": {"type": CANARY}, "tools": [CANARY], "seed": CANARY,
                        "messages": [{"role": CANARY, "content": TEXT}], "model": 7, "top_p": 99,
                        "max_tokens": CANARY, "stream": CANARY, CANARY: CANARY}.items():
        yield name, {**good, name: value}
    yield "content", {**good, "messages": [{"role": "user", "content": {CANARY: 1}}]}
    yield "parts", {**good, "messages": [{"role": "user", "content": [{"type": CANARY}]}]}
    yield "too long", {**good, "messages": [{"role": "user", "content": TEXT * 2000}]}


class Canary(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker()
        cls.gateway = fleet.start_gateway([cls.worker], "--no_worker_wait=1s")
        cls.client, cls.direct = (fleet.Client(p.address) for p in (cls.gateway, cls.worker))
        cls.client.wait_for_model()

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()

    def check_error(self, error):
        """Checks that message and details have no secret and nothing of the machines."""
        texts = [error.details() or ""]
        for key, value in error.trailing_metadata() or ():
            texts.append(str(value))
            if key == "grpc-status-details-bin":
                texts.append(str(status_pb2.Status.FromString(value)))
        for text in texts:
            self.assertNotIn(CANARY, text)
            self.assertIsNone(MACHINE.search(text), text)

    def check_silent(self):
        for program in self.gateway, self.worker:
            page = urllib.request.urlopen(f"http://{program.metrics_address}/metrics", timeout=WAIT_S)
            self.assertNotIn(CANARY, page.read().decode())
            self.assertGreater(len(program.lines), 0)
            for line in program.lines:
                self.assertNotIn(CANARY, line)

    def test_requests_that_fail_tell_nothing(self):
        metadata = (("authorization", f"Bearer {KEY}"), ("x-session-id", CANARY))
        for client in self.client, self.direct:
            for what, request in bad_requests():
                with self.subTest(what, gateway=client is self.client):
                    try:
                        client.generate(request, metadata=metadata, timeout=WAIT_S)
                    except grpc.RpcError as error:
                        self.check_error(error)
            for what, request in bad_constraints():
                with self.subTest(what), self.assertRaises(grpc.RpcError) as caught:
                    client.generate(request, metadata=metadata, timeout=WAIT_S)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            # Calls that are cut off: by the client, by its deadline, in the middle of a message.
            long = generate(lambda r: (setattr(r.stopping, "max_tokens", 800),
                                       setattr(r.stopping, "ignore_eos", True),
                                       setattr(r.sampling, "num_sequences", 128)))
            call = client.inference.Generate(long, metadata=metadata)
            next(call)
            call.cancel()
            with self.assertRaises(grpc.RpcError) as caught:
                client.generate(long, timeout=0.05)
            self.check_error(caught.exception)
            raw = client.channel.unary_stream("/continuo.v1.InferenceService/Generate")
            for body in b"\x1a\xff" + CANARY.encode(), b"\x1a\x0f" + CANARY.encode() + b"\xff\xfe":
                with self.assertRaises(grpc.RpcError) as caught:
                    list(raw(body, metadata=metadata))
                self.check_error(caught.exception)
        self.check_silent()

    def test_other_calls_that_fail_tell_nothing(self):
        calls = [("Tokenize", pb.TokenizeRequest(text=TEXT * 400_000)),
                 ("Tokenize", pb.TokenizeRequest(text=TEXT, model="another")),
                 ("Detokenize", pb.DetokenizeRequest(token_ids=[10**7])),
                 ("Embed", pb.EmbedRequest()), ("GetModel", pb.GetModelRequest(name="another"))]
        for client in self.client, self.direct:
            for name, request in calls:
                with self.subTest(name):
                    try:
                        getattr(client.inference, name)(request, timeout=WAIT_S)
                    except grpc.RpcError as error:
                        self.check_error(error)
        self.check_silent()

    def test_http_requests_that_fail_tell_nothing(self):
        bodies = [(what, json.dumps(body)) for what, body in bad_bodies()]
        bodies += [("no JSON", "{" + CANARY), ("deep", "[" * 5000 + CANARY), ("text", CANARY)]
        for path in "chat/completions", "completions", CANARY:
            for what, body in bodies:
                with self.subTest(path=path, body=what):
                    request = urllib.request.Request(
                        f"http://{self.gateway.http_address}/v1/{path}", body.encode(),
                        {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"})
                    try:
                        urllib.request.urlopen(request, timeout=WAIT_S).read()
                    except urllib.error.HTTPError as error:
                        # The client's own names of fields may come back to it, its prompt may not.
                        text = error.read().decode()
                        self.assertNotIn(TEXT.strip(), text)
                        self.assertIsNone(MACHINE.search(text), text)
        self.check_silent()

    def test_a_lost_worker_tells_nothing(self):
        worker = fleet.start_worker()
        gateway = fleet.start_gateway([worker], "--no_worker_wait=500ms")
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        begun, errors = threading.Event(), []

        def run():
            try:
                client.generate(generate(lambda r: (setattr(r.stopping, "max_tokens", 900),
                                                    setattr(r.stopping, "ignore_eos", True))),
                                on_response=lambda _: begun.set())
            except grpc.RpcError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        self.assertTrue(begun.wait(WAIT_S))
        worker.kill()
        thread.join()
        for request in pb.TokenizeRequest(text=TEXT), pb.TokenizeRequest(text=TEXT, model="another"):
            with self.assertRaises(grpc.RpcError) as caught:
                client.inference.Tokenize(request, timeout=WAIT_S)
            errors.append(caught.exception)
        gateway.terminate()
        self.assertEqual(len(errors), 3)
        for error in errors:
            self.check_error(error)
        for line in gateway.lines + worker.lines:
            self.assertNotIn(CANARY, line)


if __name__ == "__main__":
    unittest.main(verbosity=2)
