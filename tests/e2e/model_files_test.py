#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Folders whose files are not as they should be: answers end all the same, what was put right is told, and
what cannot be served is refused with its cause."""
import contextlib
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

NO_END = "the model names no token that ends an answer: answers go on to max_tokens"
PUT_RIGHT = "the model is not served as its files say"
NOT_USED = "the model's response_template is not used"


@contextlib.contextmanager
def demo_model(**files):
    """A demo model's folder in which the JSON files have the fields given; a field of None is left out."""
    with tempfile.TemporaryDirectory() as folder:
        model = pathlib.Path(folder) / "model"
        shutil.copytree(fleet.DEMO_MODEL, model)
        for name, fields in files.items():
            path = model / f"{name}.json"
            values = json.loads(path.read_text()) | fields
            path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
        yield model


class ModelFilesTest(unittest.TestCase):
    def serve(self, model, *flags):
        """The line "loaded", warnings, and (text, finish reason) of an answer."""
        worker = fleet.start_worker(model, *flags)
        gateway = fleet.start_gateway([worker])
        client = fleet.Client(gateway.address)
        client.wait_for_model()
        request = pb.GenerateRequest()
        request.conversation.messages.add(role="user", content="What is your name?")
        request.sampling.temperature = 0
        request.stopping.max_tokens = 200
        request.output.collect = True
        answer = client.generate(request)
        self.assertEqual(gateway.terminate(), 0)
        self.assertEqual(worker.terminate(), 0)
        log = [json.loads(line) for line in worker.lines]
        loaded = next(line for line in log if line["message"] == "loaded")
        warnings = [line for line in log if line["severity"] == "WARNING"]
        return loaded, warnings, (answer.text[0], answer.finish[0])

    def test_answers_end_with_what_any_file_names(self):
        nothing = {"config": {"eos_token_id": None}, "generation_config": {"eos_token_id": None}}
        no_token = {"tokenizer_config": {"eos_token": None}, "special_tokens_map": {"eos_token": None}}
        loaded, warnings, whole = self.serve(fleet.DEMO_MODEL)
        self.assertEqual(loaded["end_tokens"], "1 <|end|>")
        self.assertEqual(warnings, [])
        self.assertEqual(whole[1], pb.FINISH_REASON_STOP)
        for change in (nothing, nothing | {"tokenizer_config": {"eos_token": None}},
                       nothing | {"special_tokens_map": {"eos_token": None}},
                       no_token | nothing,  # the chat template closes turns with it
                       no_token | {"config": {"eos_token_id": None}}):
            with self.subTest(change), demo_model(**change) as model:
                told, warnings, answer = self.serve(model)
                self.assertEqual(told["end_tokens"], "1 <|end|>")
                self.assertEqual((warnings, answer), ([], whole))
                if "special_tokens_map" not in change:
                    self.assertEqual(told["fingerprint"], loaded["fingerprint"])

    def test_no_end_at_all_is_a_warning(self):
        plain = "{% for m in messages %}{{ m.role + ': ' + m.content + '\n' }}{% endfor %}"
        with demo_model(config={"eos_token_id": None}, generation_config={"eos_token_id": None},
                        tokenizer_config={"eos_token": None, "chat_template": plain},
                        special_tokens_map={"eos_token": None}) as model:
            loaded, warnings, answer = self.serve(model)
            self.assertEqual(loaded["end_tokens"], "")
            self.assertEqual([line["message"] for line in warnings], [NO_END])
            self.assertEqual(answer[1], pb.FINISH_REASON_LENGTH)

    def test_defaults_are_clamped_and_names_are_understood(self):
        def drop_prefix(model):
            path = model / "model.safetensors"
            data = path.read_bytes()
            size = int.from_bytes(data[:8], "little")
            header = json.loads(data[8:8 + size])
            renamed = json.dumps({k.removeprefix("model."): v for k, v in header.items()}).encode()
            path.write_bytes(len(renamed).to_bytes(8, "little") + renamed + data[8 + size:])
        usual, _, whole = self.serve(fleet.DEMO_MODEL)
        with demo_model(config={"architectures": ["LlamaModel"]}) as model:
            drop_prefix(model)
            config = model / "config.json"
            config.write_bytes(b"\xef\xbb\xbf" + config.read_bytes())
            loaded, warnings, answer = self.serve(model)
            self.assertEqual((loaded["fingerprint"], warnings, answer),
                             (usual["fingerprint"], [], whole))
        with demo_model(generation_config={"temperature": -1, "top_p": 2, "top_k": -5}) as model:
            _, warnings, answer = self.serve(model)
            self.assertEqual([line["message"] for line in warnings], [PUT_RIGHT] * 3)
            for line, field in zip(warnings, ("temperature is -1", "top_p is 2", "top_k is -5")):
                self.assertIn(field, line["reason"])
            self.assertEqual(answer, whole)

    def test_a_response_template_that_cannot_be_read_is_a_warning(self):
        usual, _, whole = self.serve(fleet.DEMO_MODEL)
        self.assertEqual(usual["tool_format"], "hermes")
        with demo_model(tokenizer_config={"response_template": {"fields": 7}}) as model:
            loaded, warnings, answer = self.serve(model)
            self.assertEqual([line["message"] for line in warnings], [NOT_USED])
            self.assertIn("fields", warnings[0]["reason"])
            self.assertEqual((loaded["tool_format"], answer), ("hermes", whole))
            loaded, warnings, answer = self.serve(model, "--tool_format=glm")
            self.assertEqual((loaded["tool_format"], warnings, answer), ("glm", [], whole))

    def test_a_tool_format_is_part_of_the_fingerprint(self):
        prints = {self.serve(fleet.DEMO_MODEL, *flags)[0]["fingerprint"]
                  for flags in ((), ("--tool_format=none",), ("--tool_format=hermes",))}
        self.assertEqual(len(prints), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
