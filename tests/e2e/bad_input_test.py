#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every mistake of a client, a file or a command line is one clear error that names the thing and
the limit; the process lives and other streams are untouched."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402
from google.rpc import error_details_pb2, status_pb2  # noqa: E402

INVALID = grpc.StatusCode.INVALID_ARGUMENT
NAN = float("nan")


def fields_of(error):
    """The field paths that google.rpc.BadRequest names."""
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            for detail in status_pb2.Status.FromString(value).details:
                bad = error_details_pb2.BadRequest()
                if detail.Unpack(bad):
                    return [v.field for v in bad.field_violations]
    return []


def good():
    request = pb.GenerateRequest(text="Mira lives in Oslo.")
    request.stopping.max_tokens = 4
    return request


def unknown_field(request):
    request.MergeFromString(b"\xf8\x3f\x01")  # field 1023, varint 1


# The first response to a good request.
first_accepted = pb.Accepted()


def had(request, **delta):
    """The request goes on after this delta of an answer that a worker did begin."""
    request.continuation.received.accepted.CopyFrom(first_accepted)
    request.continuation.received.deltas.add(**delta)


# (name, change of a good request, code, what the message and the field path have)
CASES = [
    ("no prompt", lambda r: r.ClearField("text"), INVALID, "prompt"),
    ("no ids", lambda r: r.token_ids.SetInParent(), INVALID, "token"),
    ("id outside the vocabulary", lambda r: r.token_ids.ids.append(2**31), INVALID, "token_ids"),
    ("largest id", lambda r: r.token_ids.ids.append(2**32 - 1), INVALID, "token_ids"),
    ("over-long prompt", lambda r: r.token_ids.ids.extend([20] * 5000), INVALID, "5000"),
    ("unknown model", lambda r: setattr(r, "model", "nobody"), grpc.StatusCode.NOT_FOUND, "nobody"),
    ("NaN temperature", lambda r: setattr(r.sampling, "temperature", NAN), INVALID, "temperature"),
    ("negative temperature", lambda r: setattr(r.sampling, "temperature", -1), INVALID, "100"),
    ("hot", lambda r: setattr(r.sampling, "temperature", 101), INVALID, "temperature"),
    ("top_p -0.1", lambda r: setattr(r.sampling, "top_p", -0.1), INVALID, "top_p"),
    ("top_p 1.1", lambda r: setattr(r.sampling, "top_p", 1.1), INVALID, "top_p"),
    ("min_p", lambda r: setattr(r.sampling, "min_p", 1.5), INVALID, "min_p"),
    ("min_p NaN", lambda r: setattr(r.sampling, "min_p", NAN), INVALID, "min_p"),
    ("n 0", lambda r: setattr(r.sampling, "num_sequences", 0), INVALID, "num_sequences"),
    ("n 129", lambda r: setattr(r.sampling, "num_sequences", 129), INVALID, "128"),
    ("repetition 0", lambda r: setattr(r.sampling, "repetition_penalty", 0), INVALID,
     "repetition_penalty"),
    ("presence", lambda r: setattr(r.sampling, "presence_penalty", 2.5), INVALID,
     "presence_penalty"),
    ("frequency", lambda r: setattr(r.sampling, "frequency_penalty", -2.5), INVALID,
     "frequency_penalty"),
    ("bias", lambda r: r.sampling.logit_bias.update({3: 101}), INVALID, "logit_bias"),
    ("bias of no token", lambda r: r.sampling.logit_bias.update({2**30: 1}), INVALID, "logit_bias"),
    ("too many biases", lambda r: r.sampling.logit_bias.update({i: 1 for i in range(1025)}),
     INVALID, "1024"),
    ("min over max", lambda r: setattr(r.stopping, "min_tokens", 5), INVALID, "min_tokens"),
    ("17 stops", lambda r: r.stopping.strings.extend(str(i) for i in range(17)), INVALID, "16"),
    ("empty stop", lambda r: r.stopping.strings.append(""), INVALID, "strings"),
    ("long stop", lambda r: r.stopping.strings.append("x" * 257), INVALID, "256"),
    ("65 stop ids", lambda r: r.stopping.token_ids.extend(range(65)), INVALID, "64"),
    ("stop id outside", lambda r: r.stopping.token_ids.append(2**31), INVALID, "token_ids"),
    ("negative time limit", lambda r: setattr(r.stopping.time_limit, "seconds", -1), INVALID,
     "time_limit"),
    ("bad duration", lambda r: setattr(r.stopping.time_limit, "nanos", 2**31 - 1), INVALID,
     "time_limit"),
    ("21 logprobs", lambda r: setattr(r.output, "logprobs", 21), INVALID, "20"),
    ("21 prompt logprobs", lambda r: setattr(r.output, "prompt_logprobs", 21), INVALID, "20"),
    ("priority", lambda r: setattr(r, "priority", 101), INVALID, "priority"),
    ("long id", lambda r: setattr(r, "request_id", "x" * 129), INVALID, "128"),
    ("unprintable id", lambda r: setattr(r, "request_id", "a\nb"), INVALID, "request_id"),
    ("schema", lambda r: setattr(r.constraint, "json_schema", '{"not": {}}'), INVALID,
     "constraint.json_schema"),
    ("regex", lambda r: setattr(r.constraint, "regex", "(" * 100000), INVALID, "constraint.regex"),
    ("endless lark", lambda r: setattr(r.constraint, "lark", "start: start start"), INVALID, "constraint.lark"),
    ("lark", lambda r: setattr(r.constraint, "lark", "start: ("), INVALID, "constraint.lark"),
    ("choice", lambda r: r.constraint.choice.SetInParent(), INVALID, "constraint.choice"),
    ("tools", lambda r: r.conversation.tools.add(name="f", parameters="[1]"), INVALID, "tools"),
    ("no messages", lambda r: r.conversation.SetInParent(), INVALID, "conversation.messages"),
    ("tool choice", lambda r: setattr(r.conversation.tool_choice, "mode", 3), INVALID,
     "tool_choice"),
    ("tool calls", lambda r: r.conversation.messages.add(role="assistant").tool_calls.add(),
     INVALID, "tool_calls"),
    ("template arguments", lambda r: (r.conversation.messages.add(role="user", content="x"), setattr(
        r.conversation, "template_arguments", "[1")), INVALID, "template_arguments"),
    ("unknown field", unknown_field, INVALID, "1023"),
    ("progress with collect", lambda r: (setattr(r.output, "collect", True), setattr(
        r.output, "progress", True)), INVALID, "progress"),
    ("collect too large", lambda r: (setattr(r.output, "collect", True), setattr(
        r.output, "logprobs", 20), setattr(r.sampling, "num_sequences", 128), setattr(
            r.stopping, "max_tokens", 900)), INVALID, "collect"),
    ("continuation of nothing accepted", lambda r: r.continuation.received.deltas.add(
        index=0, token_ids=[5]), INVALID, "continuation.received.accepted"),
    ("continuation outside the vocabulary", lambda r: had(r, token_ids=[2048]), INVALID,
     ["continuation.received.deltas[0].token_ids", "id 2048", "2048 tokens"]),
    ("continuation of another sequence", lambda r: had(r, index=1, token_ids=[5]), INVALID,
     ["continuation.received.deltas[0].index", "1 sequences"]),
    ("continuation beyond max_tokens", lambda r: had(r, token_ids=[20] * 5), INVALID,
     ["continuation.received.deltas", "5 tokens", "max_tokens is 4"]),
    ("continuation after its end", lambda r: had(r, token_ids=[1, 20]), INVALID,
     ["continuation.received.deltas", "after its end, which is token 1"]),
]


class BadRequestTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL)
        cls.gateway = fleet.start_gateway([cls.worker])
        cls.client = fleet.Client(cls.gateway.address)
        cls.client.wait_for_model()
        cls.both = {"gateway": cls.client, "worker": fleet.Client(cls.worker.address)}
        first_accepted.CopyFrom(cls.client.generate(good()).accepted[0])

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()

    def refusal_of(self, client, raw):
        """The error of a Generate call with these bytes."""
        call = client.channel.unary_stream("/continuo.v1.InferenceService/Generate")
        with self.assertRaises(grpc.RpcError) as raised:
            list(call(raw, timeout=20))
        return raised.exception

    def test_each_is_refused_by_name_while_another_stream_goes_on(self):
        other = pb.GenerateRequest(text="Tom lives in Lima.")
        other.sampling.seed = 9
        other.sampling.num_sequences = 8  # seconds of work
        other.stopping.max_tokens = 900
        other.stopping.ignore_eos = True
        undisturbed = self.client.generate(other).comparable()
        call = self.client.inference.Generate(other, timeout=120)
        responses = [next(call)]
        for program, client in self.both.items():
            for name, change, code, parts in CASES:
                with self.subTest(name, program=program):
                    request = good()
                    change(request)
                    with self.assertRaises(grpc.RpcError) as raised:
                        client.generate(request)
                    error = raised.exception
                    self.assertEqual(error.code(), code, error.details())
                    for part in [parts] if isinstance(parts, str) else parts:
                        self.assertIn(part, error.details() + " ".join(fields_of(error)))
        responses.extend(call)
        self.assertEqual(fleet.Answer(responses).comparable(), undisturbed)
        self.assertIsNone(self.worker.process.poll())
        self.assertIsNone(self.gateway.process.poll())

    def test_text_that_is_no_utf8(self):
        # Stock stubs cannot build it, so the bytes are sent as they are.
        nested = pb.GenerateRequest()
        nested.conversation.messages.add(role="user", content="XX")
        for raw, field in ((b"\x1a\x02\xc3\x28", "text"), (b"\x1a\x01\xff", "text"),
                           (nested.SerializeToString().replace(b"XX", b"\xc3("),
                            "conversation.messages.content")):
            for program, client in self.both.items():
                with self.subTest(field, program=program):
                    error = self.refusal_of(client, raw)
                    self.assertEqual(error.code(), INVALID, error.details())
                    self.assertEqual(fields_of(error), [field])

    def test_garbage_is_no_message(self):
        for program, client in self.both.items():
            with self.subTest(program=program):
                error = self.refusal_of(client, b"\xff\xff\xff\xff")
                self.assertEqual(error.code(), INVALID, error.details())
                self.assertIn("GenerateRequest", error.details())
                client.generate(good())

    def test_a_finish_reason_of_the_future_is_an_end(self):
        # A worker of another version gave it, in a rolling update.
        for program, client in self.both.items():
            with self.subTest(program=program):
                request = good()
                had(request, token_ids=[20], finish_reason=77)
                answer = client.generate(request)
                self.assertEqual(answer.ids.get(0, []), [])
                self.assertEqual(answer.summary.usage.completion_tokens, 1)

    def test_detokenize_and_tokenize(self):
        with self.assertRaises(grpc.RpcError) as raised:
            self.client.inference.Detokenize(pb.DetokenizeRequest(token_ids=[2**31]), timeout=10)
        self.assertEqual(raised.exception.code(), INVALID)
        ids = self.client.inference.Tokenize(pb.TokenizeRequest(text="Mira lives"), timeout=10)
        back = self.client.inference.Detokenize(pb.DetokenizeRequest(
            token_ids=ids.token_ids), timeout=10)
        self.assertEqual(back.text.strip(), "Mira lives")


class BadStartTest(unittest.TestCase):
    def start(self, *flags, program="continuo-worker", env=None):
        """Exit status and stderr of a program that must not start."""
        import os
        done = subprocess.run([fleet.BIN / program, *flags], capture_output=True, text=True,
                              timeout=60, env={**os.environ, **(env or {})})
        self.assertNotEqual(done.returncode, 0, done.stderr)
        self.assertGreater(done.returncode, 0, f"died of a signal: {done.stderr}")
        return done.stderr

    def broken(self, change):
        """stderr of a worker on a copy of the demo model that `change` broke."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model"
            shutil.copytree(fleet.DEMO_MODEL, model)
            change(model)
            return self.start(f"--model={model}", "--listen=127.0.0.1:0",
                              "--metrics_listen=127.0.0.1:0")

    def config(self, **fields):
        def change(model):
            config = json.loads((model / "config.json").read_text())
            config.update(fields)
            (model / "config.json").write_text(json.dumps(config))
        return self.broken(change)

    def test_flags(self):
        for flag, part in [("--threads=0", "threads"), ("--threads=x", "threads"),
                           ("--isa=sse9", "isa"), ("--block_size=-1", "block_size"),
                           ("--tensor_parallel=3", "tensor_parallel"), ("--nonsense=1", "nonsense"),
                           ("--max_context_tokens=99999999", "context"),
                           ("--listen=nowhere", "listen"), ("--drain_grace=31s", "30")]:
            with self.subTest(flag):
                self.assertIn(part, self.start(f"--model={fleet.DEMO_MODEL}", flag))
        too_small = self.start(f"--model={fleet.DEMO_MODEL}", "--kv_blocks=2",
                               "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0")
        self.assertIn("a KV cache of 2 blocks", too_small)
        self.assertIn("needs 64 blocks", too_small)
        self.assertIn("model", self.start())
        self.assertIn("CONTINUO_THREADS", self.start(f"--model={fleet.DEMO_MODEL}",
                                            env={"CONTINUO_THREADS": "many"}))
        self.assertIn("workers", self.start(program="continuo-gateway"))
        self.assertIn("workers", self.start("--workers=a b", program="continuo-gateway"))

    def test_model_folders(self):
        self.assertIn("no-such", self.start("--model=/no-such"))
        self.assertIn("config.json", self.broken(lambda m: (m / "config.json").unlink()))
        self.assertIn("config.json", self.broken(
            lambda m: (m / "config.json").write_text("{" * 100000)))
        self.assertIn("safetensors", self.broken(lambda m: (m / "model.safetensors").unlink()))
        self.assertIn("tokenizer.json", self.broken(lambda m: (m / "tokenizer.json").unlink()))
        self.assertIn("tokenizer.json", self.broken(
            lambda m: (m / "tokenizer.json").write_text('{"model":1}')))
        self.assertIn("MambaForCausalLM", self.config(architectures=["MambaForCausalLM"]))
        self.assertIn("hidden_size", self.config(hidden_size=2**40))
        self.assertIn("num_attention_heads", self.config(num_attention_heads=0))
        stderr = self.config(intermediate_size=17)
        self.assertIn("17", stderr)
        self.assertIn("mlp", stderr)

    def test_weights(self):
        def truncate(model):
            file = model / "model.safetensors"
            file.write_bytes(file.read_bytes()[:-1000])

        def absurd_header(model):
            file = model / "model.safetensors"
            file.write_bytes(b"\xff" * 8 + file.read_bytes()[8:])

        def rename(model):
            file = model / "model.safetensors"
            file.write_bytes(file.read_bytes().replace(b"model.norm.weight", b"model.norn.weight"))
        self.assertIn("model.safetensors", self.broken(truncate))
        self.assertIn("model.safetensors", self.broken(absurd_header))
        self.assertIn("model.norm.weight", self.broken(rename))


if __name__ == "__main__":
    unittest.main(verbosity=2)
