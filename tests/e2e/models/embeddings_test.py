#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeddings by the stock OpenAI SDK and by gRPC, from real gateways and workers, while workers are killed too."""
import concurrent.futures
import json
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import grpc  # noqa: E402
import killed  # noqa: E402
import openai  # noqa: E402
import reference  # noqa: E402
from fleet import pb  # noqa: E402
from models import lora_adapters, step_watch  # noqa: E402

FLAGS = ("--threads=1", "--kv_cache_memory=64MiB", "--weights=fp32", "--model_name=vectors")
TEXTS = [f"Text {i}: " + "Mira lives in Oslo and plays the violin. " * (i % 5) for i in range(64)]
OUT = 7


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, values in tensors.items():
        raw = numpy.asarray(values, "<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(numpy.shape(values)),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def make_folder(folder):
    """The demo model as sentence-transformers would save one with a dense layer and prompts."""
    shutil.copytree(fleet.DEMO_MODEL, folder)
    size = json.loads((folder / "config.json").read_text())["hidden_size"]
    random = numpy.random.default_rng(7)
    dense = {"linear.weight": random.standard_normal((OUT, size)), "linear.bias": random.standard_normal(OUT)}
    (folder / "1_Pooling").mkdir()
    (folder / "2_Dense").mkdir()
    files = {
        "modules.json": [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                         for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"),
                                                           ("2_Dense", "Dense"), ("3_Normalize", "Normalize")])],
        "1_Pooling/config.json": {"word_embedding_dimension": size, "pooling_mode_lasttoken": True},
        "2_Dense/config.json": {"in_features": size, "out_features": OUT, "bias": True,
                                "activation_function": "torch.nn.modules.activation.Tanh"},
        "config_sentence_transformers.json": {"prompts": {"query": "Find: ", "document": ""},
                                              "default_prompt_name": None},
    }
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content))
    write_safetensors(folder / "2_Dense/model.safetensors", dense)
    return {name: values.astype("<f4").astype(numpy.float64) for name, values in dense.items()}


def merge(weights, folder):
    """Adds an adapter to the weights of a reference."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = reference.read_safetensors(folder / "adapter_model.safetensors")
    for name, b in tensors.items():
        if not name.endswith(".lora_B.weight"):
            continue
        a = tensors[name.replace(".lora_B.", ".lora_A.")]
        module = name.removeprefix("base_model.model.").removesuffix(".lora_B.weight")
        weights[f"{module}.weight"] = weights[f"{module}.weight"] + config["lora_alpha"] / config["r"] * (b @ a)


class EmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-embeddings-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.model = cls.folder / "model"
        cls.dense = make_folder(cls.model)
        cls.workers = [fleet.start_worker(cls.model, *FLAGS) for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.url = f"http://{cls.gateway.http_address}/v1"
        cls.grpc = fleet.Client(cls.gateway.address)
        cls.grpc.wait_for_model(num_workers=2)
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        for worker in cls.workers:
            worker.kill()

    def vectors(self, texts, **options):
        answer = self.client.embeddings.create(model="vectors", input=texts, **options)
        self.assertEqual([entry.index for entry in answer.data], list(range(len(answer.data))))
        # The digits of a JSON number are as many as a float32 needs.
        return [numpy.float32(entry.embedding).tolist() for entry in answer.data]

    def test_vectors_are_those_of_a_reference_in_float64(self):
        model = reference.Model(self.model)
        head = fleet.pb_grpc.InferenceServiceStub(grpc.insecure_channel(self.gateway.address))
        for text, vector in zip(TEXTS[:5], self.vectors(TEXTS[:5])):
            ids = list(head.Tokenize(pb.TokenizeRequest(text=text)).token_ids)
            want = numpy.tanh(self.dense["linear.weight"] @ model.states(ids)[-1] + self.dense["linear.bias"])
            want /= numpy.linalg.norm(want)
            numpy.testing.assert_allclose(vector, want, atol=2e-5)
            self.assertGreater(numpy.dot(vector, want) / numpy.linalg.norm(vector), 0.9999)

    def test_a_vector_is_the_same_alone_and_in_a_batch_and_on_any_number_of_ranks(self):
        batch = self.vectors(TEXTS, encoding_format="float")
        self.assertEqual(batch, self.vectors(TEXTS), "base64, which the SDK asks for by itself")
        self.assertEqual(batch, [self.vectors(text)[0] for text in TEXTS])
        for ranks in (2, 4):
            worker = fleet.start_worker(self.model, *FLAGS, f"--tensor_parallel={ranks}", "--max_prefill_chunk=5")
            stub = fleet.pb_grpc.InferenceServiceStub(grpc.insecure_channel(worker.address))
            response = stub.Embed(pb.EmbedRequest(inputs=[pb.EmbedInput(text=text) for text in TEXTS]))
            self.assertEqual(batch, [list(vector.values) for vector in response.embeddings])
            worker.kill()

    def test_adapters_give_vectors_of_merged_weights_whatever_is_beside_them(self):
        adapters = {name: lora_adapters.write(self.model, self.folder / name, rank=4 * i + 4, seed=i)
                    for i, name in enumerate(("poet", "clerk"))}
        worker = fleet.start_worker(self.model, *FLAGS,
                                    *(f"--lora_adapter={name}={folder}" for name, folder in adapters.items()))
        self.addCleanup(worker.kill)
        client = fleet.Client(worker.address)
        client.wait_for_model()

        def embed(name, texts, request_id=""):
            request = pb.EmbedRequest(model=name, request_id=request_id,
                                      inputs=[pb.EmbedInput(text=text) for text in texts])
            request.cache.bypass = True  # each is computed
            return [list(vector.values) for vector in client.inference.Embed(request, timeout=120).embeddings]
        names = ("vectors", *adapters)
        alone = {name: [embed(name, [text])[0] for text in TEXTS] for name in names}
        for name, folder in adapters.items():
            model = reference.Model(self.model)
            merge(model.weights, folder)
            for text, vector, plain in zip(TEXTS[:5], alone[name], alone["vectors"]):
                ids = list(client.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)
                want = numpy.tanh(self.dense["linear.weight"] @ model.states(ids)[-1] + self.dense["linear.bias"])
                want /= numpy.linalg.norm(want)
                numpy.testing.assert_allclose(vector, want, atol=5e-5)
                self.assertGreater(numpy.abs(numpy.subtract(plain, want)).max(), 5e-4)
        watch = step_watch.StepWatch(client, lambda name: embed("vectors", ["a"], name))
        self.addCleanup(watch.end)
        calls = [name for _ in range(3) for name in names]
        for number in range(20):  # a busy machine does not begin all of them together
            with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
                batches = list(pool.map(lambda i: embed(calls[i], TEXTS, f"{calls[i]}-{i}-{number}"), range(len(calls))))
            for name, batch in zip(calls, batches):
                self.assertEqual(batch, alone[name], name)
            if watch.most(names) >= 2:
                return
        self.fail("no step had two models")

    def test_options_do_what_they_say(self):
        text = TEXTS[3]
        whole = numpy.array(self.vectors(text)[0])
        self.assertAlmostEqual(numpy.linalg.norm(whole), 1, places=6)
        short = numpy.array(self.vectors(text, dimensions=3)[0])
        numpy.testing.assert_allclose(short, whole[:3] / numpy.linalg.norm(whole[:3]), atol=1e-6)
        plain = self.vectors(text, extra_body={"normalize": False})[0]
        numpy.testing.assert_allclose(plain / numpy.linalg.norm(plain), whole, atol=1e-6)
        self.assertEqual(self.vectors(text, extra_body={"prompt_name": "query"}), self.vectors("Find: " + text))
        ids = list(self.grpc.inference.Tokenize(pb.TokenizeRequest(text=text)).token_ids)
        self.assertEqual(self.vectors(ids), self.vectors(text))
        self.assertEqual(self.vectors([ids, ids[:4]]), [*self.vectors(text), *self.vectors(ids[:4])])
        usage = self.client.embeddings.create(model="vectors", input=[ids, ids[:4]]).usage
        self.assertEqual((usage.prompt_tokens, usage.total_tokens), (len(ids) + 4, len(ids) + 4))

    def test_a_text_that_is_too_long_is_refused_or_cut_as_asked(self):
        context = self.grpc.inference.GetModel(pb.GetModelRequest()).model.max_context_tokens
        text = "Mira " * (2 * context)
        with self.assertRaises(openai.BadRequestError) as refused:
            self.vectors(["a", text])
        self.assertEqual((refused.exception.code, refused.exception.param), ("context_length_exceeded", "input[1]"))
        first = self.vectors(text, extra_body={"truncate_prompt_tokens": -1})[0]
        last = self.vectors("Oslo " + text, extra_body={"truncate_prompt_tokens": 9, "truncation_side": "left"})[0]
        self.assertEqual(len(first), OUT)
        self.assertNotEqual(first, last)

    def test_what_is_wrong_is_named(self):
        for body, param in (({"dimensions": OUT + 1}, "dimensions"), ({"extra_body": {"prompt_name": "x"}}, "prompt_name"),
                            ({"extra_body": {"inputs": []}}, "inputs")):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.vectors("a", **body)
            self.assertEqual(refused.exception.param, param)
        with self.assertRaises(openai.NotFoundError):
            self.client.embeddings.create(model="other", input="a")

    def test_a_model_that_embeds_does_not_generate_and_the_other_way_round(self):
        model = self.grpc.inference.GetModel(pb.GetModelRequest()).model
        self.assertEqual(list(model.capabilities), [pb.CAPABILITY_EMBED])
        self.assertEqual((model.embedding_dimensions, list(model.prompt_names)), (OUT, ["document", "query"]))
        with self.assertRaises(openai.InternalServerError) as refused:
            self.client.completions.create(model="vectors", prompt="a", max_tokens=1)
        self.assertEqual(refused.exception.status_code, 501)
        self.assertIn('"vectors" makes embeddings', str(refused.exception))
        worker = fleet.start_worker(self.model, *FLAGS, "--task=generate")
        stub = fleet.pb_grpc.InferenceServiceStub(grpc.insecure_channel(worker.address))
        with self.assertRaises(grpc.RpcError) as refused:
            stub.Embed(pb.EmbedRequest(inputs=[pb.EmbedInput(text="a")]))
        self.assertEqual(refused.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        worker.kill()

    def test_describe_tells_of_the_vectors(self):
        told = json.loads(subprocess.run([fleet.BIN / "continuo-worker", "--describe=json", f"--model={self.model}"],
                                         capture_output=True, text=True, check=True, timeout=60).stdout)
        self.assertEqual(told["embeddings"], {"dimensions": OUT, "dense_modules": 1, "normalises": True,
                                              "prompts": ["document", "query"]})
        text = subprocess.run([fleet.BIN / "continuo-worker", "--describe", f"--model={fleet.DEMO_MODEL}"],
                              capture_output=True, text=True, check=True, timeout=60).stdout
        self.assertNotIn("embeddings", text)

    def test_a_thousand_inputs_are_one_answer(self):
        texts = [TEXTS[i % len(TEXTS)] for i in range(1000)]
        batch = self.vectors(TEXTS)
        self.assertEqual(self.vectors(texts), [batch[i % len(TEXTS)] for i in range(1000)])


class KilledTest(unittest.TestCase):
    """Workers die and pause under calls; every client gets the vectors of an undisturbed run."""

    def test_vectors_come_while_workers_are_killed(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-embeddings-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        make_folder(folder / "model")
        workers = [fleet.start_worker(folder / "model", *FLAGS) for _ in range(3)]
        gateway = fleet.start_gateway(workers)
        fleet.Client(gateway.address).wait_for_model(num_workers=3)
        client = openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none", max_retries=0)
        ask = lambda texts: [e.embedding for e in client.embeddings.create(model="vectors", input=texts).data]
        want = ask(TEXTS)
        with concurrent.futures.ThreadPoolExecutor(killed.NUM_CALLS) as pool:
            for _ in range(2):
                before = killed.num_migrated(gateway)
                for call in killed.kill_first(workers, gateway, pool, lambda: ask(TEXTS)):
                    self.assertEqual(call.result(timeout=120), want)
                self.assertGreater(killed.num_migrated(gateway), before, "no call was hit")
            # The last one pauses until the gateway has given it up, and is asked again.
            before = killed.num_migrated(gateway)
            calls = killed.pause(workers, gateway, pool, lambda: ask(TEXTS), 2)
            fleet.wait_until(lambda: killed.num_migrated(gateway) > before, "a migration")
            killed.go_on(workers)
            for call in calls:
                self.assertEqual(call.result(timeout=120), want)
        gateway.kill()
        workers[0].kill()


if __name__ == "__main__":
    unittest.main(verbosity=2)
