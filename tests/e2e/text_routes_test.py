#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""/tokenize, /detokenize and /tokenizer_info of a real gateway and two workers agree with what the
model is given, with gRPC and with the model's files, also when a worker dies."""
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
import unittest
import urllib.error
import urllib.parse
import urllib.request

import jinja2

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

TEXTS = ["", "Mira lives in Oslo.", "<|user|>Where?<|end|>", "caf\u00e9 \u20ac \U0001f600",
         " two  spaces\n\ttab ", "\u0000\u001f", "a" * 3000]
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is Tom?"}]


class TextRoutesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=32MiB")
                       for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model(num_workers=2)

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()

    def ask(self, path, **members):
        """POST with members, else GET."""
        request = urllib.request.Request(
            f"http://{self.gateway.http_address}{path}", json.dumps(members).encode() if members else None)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)

    def error_of(self, path, **members):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            self.ask(path, **members)
        return caught.exception.code, json.loads(caught.exception.read())["error"]

    def test_text_goes_there_and_back(self):
        for text in TEXTS:
            with self.subTest(text=text):
                answer = self.ask("/tokenize", prompt=text, return_token_strs=True)
                ids = list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)
                self.assertEqual(answer["tokens"], ids)
                self.assertEqual(answer["count"], len(ids))
                self.assertEqual(len(answer["token_strs"]), len(ids))
                self.assertEqual(answer["max_model_len"], 1024)
                plain = self.ask("/v1/tokenize", prompt=text, add_special_tokens=False,
                                 model=fleet.DEMO_MODEL.name)
                self.assertEqual(plain["token_strs"], None)
                self.assertEqual(self.ask("/detokenize", tokens=plain["tokens"]), {"prompt": text})

    def test_token_strings_are_those_of_the_vocabulary(self):
        files = json.loads((fleet.DEMO_MODEL / "tokenizer.json").read_text())
        names = {id: name for name, id in files["model"]["vocab"].items()}
        names.update((token["id"], token["content"]) for token in files["added_tokens"])
        answer = self.ask("/tokenize", prompt="<|user|> caf\u00e9 in Oslo<|end|>", return_token_strs=True)
        self.assertEqual(answer["token_strs"], [names[id] for id in answer["tokens"]])

    def test_messages_are_what_a_chat_gives_the_model(self):
        for more in ({}, {"add_generation_prompt": False}, {"chat_template_kwargs": {"x": 1}}):
            with self.subTest(more):
                answer = self.ask("/tokenize", messages=MESSAGES, **more)
                chat = self.ask("/v1/chat/completions", messages=MESSAGES, max_tokens=1,
                                return_token_ids=True, **more)
                self.assertEqual(answer["tokens"], chat["prompt_token_ids"])
                self.assertEqual(answer["count"], chat["usage"]["prompt_tokens"])

    def test_a_client_can_do_itself_what_the_tokenizer_info_says(self):
        for path in ("/tokenizer_info", "/v1/tokenizer_info/", "//v1/./tokenizer_info"):
            info = self.ask(path)
            config = json.loads((fleet.DEMO_MODEL / "tokenizer_config.json").read_text())
            self.assertEqual({name: info[name] for name in config}, config)
        rendered = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
            info["chat_template"]).render(messages=MESSAGES, add_generation_prompt=True, **{
                name: info[name] for name in ("bos_token", "eos_token", "pad_token")})
        self.assertEqual(self.ask("/tokenize", prompt=rendered, add_special_tokens=False)["tokens"],
                         self.ask("/tokenize", messages=MESSAGES)["tokens"])
        for name, id in (("bos_token", 0), ("eos_token", 1)):
            answer = self.ask("/tokenize", prompt=info[name], add_special_tokens=False)
            self.assertEqual(answer["tokens"], [id])

    def test_special_tokens_in_logprobs_have_names_and_bytes(self):
        end = "<|end|>"
        chat = self.ask("/v1/chat/completions", messages=MESSAGES, logprobs=True, top_logprobs=3,
                        logit_bias={"1": 100}, max_tokens=4)
        token = chat["choices"][0]["logprobs"]["content"][-1]
        self.assertEqual(chat["choices"][0]["finish_reason"], "stop")
        self.assertEqual((token["token"], bytes(token["bytes"])), (end, end.encode()))
        ids = self.ask("/tokenize", messages=MESSAGES)["tokens"]
        choice = self.ask("/v1/completions", prompt=ids, echo=True, logprobs=2, max_tokens=0)["choices"][0]
        scores = choice["logprobs"]
        self.assertEqual([t for t in scores["tokens"] if t.startswith("<|")],
                         ["<|begin|>", "<|system|>", end, "<|user|>", end, "<|assistant|>"])
        self.assertEqual(choice["text"], "Be brief.Where is Tom?")
        for token, offset in zip(scores["tokens"], scores["text_offset"]):
            if not token.startswith("<|"):
                self.assertEqual(choice["text"][offset:offset + len(token)], token)

    def test_errors_name_the_member(self):
        for path, members, code, param in (
                ("/tokenize", {"prompt": 7}, 400, "prompt"),
                ("/tokenize", {"prompt": "a" * (1 << 20) + "b"}, 400, "prompt"),
                ("/tokenize", {"prompt": "a", "model": "nobody"}, 404, "model"),
                ("/tokenize", {"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, 400, "tools[0].function"),
                ("/tokenize", {"messages": MESSAGES, "chat_template_kwargs": {"messages": 1}}, 400,
                 "chat_template_kwargs"),
                ("/detokenize", {"tokens": [1, 2048]}, 400, "tokens[1]"),
                ("/detokenize", {"tokens": [1] * 1000000}, 400, "tokens")):
            with self.subTest(path=path, param=param):
                got, error = self.error_of(path, **members)
                self.assertEqual((got, error["param"]), (code, param), error)

    def test_z_a_worker_that_dies_is_not_missed(self):
        want = self.ask("/tokenize", messages=MESSAGES)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            pending = [pool.submit(self.ask, "/tokenize", messages=MESSAGES) for _ in range(200)]
            pending[20].result()
            self.workers[0].kill()
            for future in pending:
                self.assertEqual(future.result(), want)


class SeveralModelsTest(unittest.TestCase):
    NAMES = ("org/one", "two")

    @classmethod
    def setUpClass(cls):
        cls.folders = [pathlib.Path(tempfile.mkdtemp(prefix="continuo-models-")) / "model" for _ in cls.NAMES]
        for name, folder in zip(cls.NAMES, cls.folders):
            shutil.copytree(fleet.DEMO_MODEL, folder)
            config = json.loads((folder / "tokenizer_config.json").read_text()) | {"pad_token": f"<{name}>"}
            (folder / "tokenizer_config.json").write_text(json.dumps(config))
        cls.workers = [fleet.start_worker(folder, "--threads=1", "--kv_cache_memory=32MiB", f"--model_name={name}")
                       for name, folder in zip(cls.NAMES, cls.folders)]
        cls.gateway = fleet.start_gateway(cls.workers)
        grpc = fleet.Client(cls.gateway.address)
        fleet.wait_until(lambda: len(grpc.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True)
                                     .models) == 2, "two models")
        # Until the gateway has heard of all, a model that it does not know may be about to come.
        fleet.wait_until(lambda: cls.status_of("/tokenizer_info?model=three") == 404, "a whole fleet")

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()
        for folder in cls.folders:
            shutil.rmtree(folder.parent)

    ask, error_of = TextRoutesTest.ask, TextRoutesTest.error_of

    @classmethod
    def status_of(cls, path):
        try:
            return urllib.request.urlopen(f"http://{cls.gateway.http_address}{path}", timeout=60).status
        except urllib.error.HTTPError as error:
            return error.code

    def test_the_tokenizer_info_is_that_of_the_model_asked_for(self):
        for name in self.NAMES:
            for query in (urllib.parse.quote(name), urllib.parse.quote_plus(name) + "&x=y"):
                info = self.ask(f"/v1/tokenizer_info?model={query}")
                self.assertEqual(info["pad_token"], f"<{name}>")

    def test_a_model_has_to_be_named(self):
        for path, code, param in (("/tokenizer_info", 400, "model"), ("/tokenizer_info?model=", 400, "model"),
                                  ("/tokenizer_info?model=three", 404, "model")):
            got, error = self.error_of(path)
            self.assertEqual((got, error["param"]), (code, param), error)


if __name__ == "__main__":
    unittest.main()
