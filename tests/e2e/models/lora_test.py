#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters by the stock OpenAI SDK and by gRPC, from real gateways and workers, while workers are killed too."""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import grpc  # noqa: E402
import openai  # noqa: E402
from fleet import pb  # noqa: E402
from models import lora_adapters, step_watch  # noqa: E402

FLAGS = ("--kv_cache_memory=64MiB", "--weights=fp32", "--model_name=base")
NAMES = ("clerk", "pirate", "poet")
PROMPT = "Once upon a time there was a"


class LoraTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        root = pathlib.Path(cls.folder.name)
        cls.adapters = {name: lora_adapters.write(fleet.DEMO_MODEL, root / name, rank=4 * i + 4, seed=i)
                        for i, name in enumerate(NAMES)}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.kill()

    def start_worker(self, name, *flags, adapters=NAMES):
        given = [f"--lora_adapter={adapter}={self.adapters[adapter]}" for adapter in adapters]
        worker = fleet.start_worker(fleet.DEMO_MODEL, *FLAGS, f"--worker_name={name}", *flags, *given)
        self.programs.append(worker)
        return worker

    def start_gateway(self, workers, *flags):
        gateway = fleet.start_gateway(workers, *flags)
        self.programs.append(gateway)
        return gateway

    @staticmethod
    def request(model, max_tokens=40, seed=7, request_id=""):
        request = pb.GenerateRequest(model=model, text=PROMPT, request_id=request_id)
        request.sampling.seed = seed
        request.output.logprobs = 1
        request.stopping.max_tokens = max_tokens
        request.stopping.ignore_eos = True
        return request

    def wait_for(self, client, names, num_workers):
        def is_there():
            models = client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True, timeout=60).models
            return {m.name for m in models if m.num_workers == num_workers and not m.undescribed} >= set(names)
        fleet.wait_until(is_there, f"{num_workers} workers of {names}")

    def test_clients_name_adapters_as_models(self):
        worker = self.start_worker("w0")
        gateway = self.start_gateway([worker])
        direct, client = fleet.Client(worker.address), fleet.Client(gateway.address)
        self.wait_for(client, ("base", *NAMES), 1)
        answers = {name: client.generate(self.request(name)) for name in ("base", *NAMES)}
        self.assertEqual(len({answer.text[0] for answer in answers.values()}), 4)
        self.assertEqual(len({answer.accepted[0].fingerprint for answer in answers.values()}), 4)
        for name, answer in answers.items():
            self.assertEqual(answer.accepted[0].model, name)
            self.assertEqual(direct.generate(self.request(name)).comparable(), answer.comparable(), name)
        # A request that names no model means the one that is no adapter.
        self.assertEqual(client.generate(self.request("")).comparable(), answers["base"].comparable())

        sdk = openai.OpenAI(base_url=f"http://{gateway.http_address}/v1", api_key="none", max_retries=0)
        self.assertEqual({model.id: getattr(model, "parent", None) for model in sdk.models.list()},
                         {"base": None, **dict.fromkeys(NAMES, "base")})
        self.assertEqual(sdk.models.retrieve("poet").parent, "base")
        asked = dict(prompt=PROMPT, seed=7, max_tokens=40, extra_body={"ignore_eos": True})
        for name, answer in answers.items():
            completion = sdk.completions.create(model=name, **asked)
            self.assertEqual(completion.choices[0].text, answer.text[0])
            self.assertEqual(completion.model, name)
            stream = sdk.completions.create(model=name, stream=True, **asked)
            self.assertEqual("".join(chunk.choices[0].text for chunk in stream if chunk.choices), answer.text[0])
        chat = sdk.chat.completions.create(model="poet", messages=[{"role": "user", "content": "Hello"}], max_tokens=5)
        self.assertEqual(chat.model, "poet")
        with self.assertRaises(openai.NotFoundError):
            sdk.completions.create(model="singer", **asked)
        series = fleet.scrape(gateway.metrics_address)
        self.assertEqual(sum(value for name, value in series.items() if name.startswith(
            "continuo_gateway_requests_total") and 'model="poet"' in name and 'code="OK"' in name), 4)
        with urllib.request.urlopen(f"http://{gateway.http_address}/fleet", timeout=10) as page:
            workers = json.load(page)["workers"]
        self.assertEqual([(w["model"], w["adapters"]) for w in workers], [("base", list(NAMES))])

    def test_many_adapters_in_a_batch_answer_as_each_alone(self):
        root = pathlib.Path(self.folder.name)
        names = [f"a{i:02}" for i in range(32)]
        self.adapters |= {name: lora_adapters.write(fleet.DEMO_MODEL, root / name, rank=1 + i, seed=100 + i)
                          for i, name in enumerate(names)}
        worker = self.start_worker("w0", "--tensor_parallel=2", "--max_running=40", adapters=names)
        client = fleet.Client(worker.address)
        client.wait_for_model()
        everyone = [*names, "base", "base"]
        alone = [client.generate(self.request(name, seed=i)).comparable() for i, name in enumerate(everyone)]
        watch = step_watch.StepWatch(client, lambda name: client.generate(self.request("base", 2, request_id=name)))
        self.addCleanup(watch.end)
        for number in range(20):  # a busy machine does not begin all of them together
            with concurrent.futures.ThreadPoolExecutor(len(everyone)) as pool:
                together = list(pool.map(lambda i: client.generate(self.request(
                    everyone[i], seed=i, request_id=f"{everyone[i]}-{i}-{number}")).comparable(), range(len(everyone))))
            for name, one, other in zip(everyone, alone, together):
                self.assertEqual(one, other, name)
            if watch.most(names) >= 8:
                return
        self.fail("no step had 8 adapters")

    def test_streams_of_killed_workers_go_on_with_the_same_bytes(self):
        workers = {"w0": self.start_worker("w0"),
                   "w1": self.start_worker("w1", "--tensor_parallel=2", "--block_size=4", "--max_prefill_chunk=7")}
        # This one has another adapter of that name, and none of the others.
        others = lora_adapters.write(fleet.DEMO_MODEL, pathlib.Path(self.folder.name) / "other", seed=99)
        self.adapters |= {"other": others}
        third = fleet.start_worker(fleet.DEMO_MODEL, *FLAGS, "--worker_name=w2", f"--lora_adapter=poet={others}")
        self.programs.append(third)
        gateway = self.start_gateway([*workers.values(), third])
        client = fleet.Client(gateway.address)
        self.wait_for(client, ("base", "poet"), 3)
        self.wait_for(client, ("pirate",), 2)
        whole = {name: client.generate(self.request(name, max_tokens=400)) for name in ("pirate", "base")}
        killed = []

        def kill(response):
            # Of whoever began, in the middle of the answer.
            if response.HasField("accepted") and response.accepted.worker in workers and not killed:
                killed.append(response.accepted.worker)
            if killed and response.deltas and workers[killed[0]].process.poll() is None:
                workers[killed[0]].process.kill()

        cut = client.generate(self.request("pirate", max_tokens=400), on_response=kill)
        self.assertEqual(len(killed), 1)
        self.assertEqual(cut.summary.migrations, 1)
        self.assertFalse(cut.summary.inexact)
        self.assertEqual(cut.comparable(), whole["pirate"].comparable())
        self.assertEqual(client.generate(self.request("base", max_tokens=400)).comparable(), whole["base"].comparable())

        # Without a worker that has the adapter nobody answers in its place.
        left = next(worker for name, worker in workers.items() if name not in killed)
        left.kill()
        with self.assertRaises(grpc.RpcError) as failed:
            list(client.inference.Generate(self.request("pirate"), timeout=5))
        self.assertIn(failed.exception.code(), (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED))
        self.assertEqual(client.generate(self.request("base", max_tokens=400)).comparable(), whole["base"].comparable())

    def test_an_unfit_adapter_ends_the_start_with_its_reason(self):
        broken = lora_adapters.write(fleet.DEMO_MODEL, pathlib.Path(self.folder.name) / "broken")
        config = json.loads((broken / "adapter_config.json").read_text())
        cases = {"use_dora": True, "modules_to_save": ["lm_head"], "r": 9}
        for field, value in cases.items():
            (broken / "adapter_config.json").write_text(json.dumps({**config, field: value}))
            done = subprocess.run([str(fleet.BIN / "continuo-worker"), f"--model={fleet.DEMO_MODEL}", *FLAGS,
                                   "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0",
                                   f"--lora_adapter=broken={broken}"], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 1)
            last = json.loads(done.stderr.splitlines()[-1])
            self.assertIn('adapter "broken"', last["reason"])
            self.assertIn(field if field != "r" else "lora_A", last["reason"])
        for value in ("poet", "=x", "poet=,a=/x", "base=/x", "a=/x,a=/y"):
            done = subprocess.run([str(fleet.BIN / "continuo-worker"), f"--model={fleet.DEMO_MODEL}",
                                   "--model_name=base", f"--lora_adapter={value}"], capture_output=True, text=True,
                                  timeout=120)
            self.assertEqual(done.returncode, 2, value)
            self.assertIn("--lora_adapter", done.stderr)


if __name__ == "__main__":
    unittest.main()
