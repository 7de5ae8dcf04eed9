#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters that workers read while they serve: on demand, by LoadAdapter, evicted and unloaded under load."""
import concurrent.futures
import json
import pathlib
import shutil
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import grpc  # noqa: E402
from fleet import pb  # noqa: E402
from continuo.v1 import worker_pb2  # noqa: E402
from models import lora_adapters, step_watch  # noqa: E402

FLAGS = ("--kv_cache_memory=64MiB", "--weights=fp32", "--model_name=base", "--max_running=40")
NAMES = tuple(f"a{i:02}" for i in range(32))
PROMPT = "Once upon a time there was a"


def request(model, max_tokens=40, seed=7, request_id=""):
    asked = pb.GenerateRequest(model=model, text=PROMPT, request_id=request_id)
    asked.sampling.seed = seed
    asked.output.logprobs = 1
    asked.stopping.max_tokens = max_tokens
    asked.stopping.ignore_eos = True
    return asked


class RunTimeLoraTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.root = pathlib.Path(cls.folder.name) / "root"
        cls.root.mkdir()
        for i, name in enumerate(NAMES):
            lora_adapters.write(fleet.DEMO_MODEL, cls.root / name, rank=1 + i, seed=100 + i)
        # What a worker answers that has all of them from its start on.
        worker = fleet.start_worker(fleet.DEMO_MODEL, *FLAGS,
                                    *(f"--lora_adapter={name}={cls.root / name}" for name in NAMES))
        client = fleet.Client(worker.address)
        client.wait_for_model()
        cls.expected = {name: client.generate(request(name)) for name in (*NAMES, "base")}
        worker.kill()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.programs = []

    def tearDown(self):
        for program in self.programs:
            program.kill()

    def start_worker(self, name, *flags, root=None):
        worker = fleet.start_worker(fleet.DEMO_MODEL, *FLAGS, f"--worker_name={name}",
                                    f"--lora_root={root or self.root}", *flags)
        self.programs.append(worker)
        return worker

    @staticmethod
    def adapters(client):
        """By name, whether each is in memory."""
        for load in client.worker.WatchLoad(worker_pb2.WatchLoadRequest(), wait_for_ready=True, timeout=60):
            return {adapter.model: not adapter.on_demand for adapter in load.adapters}

    def wait_for(self, client, names):
        fleet.wait_until(lambda: set(self.adapters(client)) == set(names), f"adapters {names}")

    def check(self, client, name, request_id=""):
        answer = client.generate(request(name, request_id=request_id))
        expected = self.expected[name]
        self.assertEqual(answer.comparable(), expected.comparable(), name)
        self.assertEqual(answer.accepted[0].fingerprint, expected.accepted[0].fingerprint, name)

    def test_32_adapters_at_once(self):
        client = fleet.Client(self.start_worker("w0", "--max_lora_adapters=32", "--tensor_parallel=2").address)
        self.wait_for(client, NAMES)
        self.assertFalse(any(self.adapters(client).values()))
        everyone = [*NAMES, "base", "base"]
        watch = step_watch.StepWatch(client, lambda name: client.generate(request("base", 2, request_id=name)))
        self.addCleanup(watch.end)
        most = 0
        for number in range(20):  # the first loads them, and a busy machine does not begin all together
            with concurrent.futures.ThreadPoolExecutor(len(everyone)) as pool:
                for done in [pool.submit(self.check, client, name, f"{name}-{number}-{i}")
                             for i, name in enumerate(everyone)]:
                    done.result()
            self.assertTrue(all(self.adapters(client).values()))
            most = watch.most(NAMES)
            if most >= 8:
                break
        self.assertGreaterEqual(most, 8, "adapters in a step")

    def test_evicted_adapters_are_read_again(self):
        client = fleet.Client(self.start_worker("w0", "--max_lora_adapters=2").address)
        self.wait_for(client, NAMES)
        for name in (*NAMES[:5], *NAMES[:5]):
            self.check(client, name)
            self.assertLessEqual(sum(self.adapters(client).values()), 2)

    def test_loads_and_unloads_under_load_fail_no_request(self):
        root = pathlib.Path(self.folder.name) / "moving"
        root.mkdir()
        for name in NAMES[:3]:
            shutil.copytree(self.root / name, root / name)
        (root / "more").mkdir()
        for name in NAMES[3:8]:
            shutil.copytree(self.root / name, root / "more" / name)
        client = fleet.Client(self.start_worker("w0", "--max_lora_adapters=8", root=root).address)
        self.wait_for(client, NAMES[:3])
        ended = threading.Event()
        counts = {}

        def generate(name):
            while not ended.is_set():
                self.check(client, name)
                counts[name] = counts.get(name, 0) + 1

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            streams = [pool.submit(generate, name) for name in (*NAMES[:3], "base")]
            try:
                for _ in range(3):
                    for name in NAMES[3:8]:
                        loaded = client.worker.LoadAdapter(
                            worker_pb2.LoadAdapterRequest(name=name, path=f"more/{name}"), timeout=60)
                        self.assertEqual(loaded.adapter.fingerprint, self.expected[name].accepted[0].fingerprint)
                        self.check(client, name)
                        # Its stream goes on when it is unloaded.
                        begun = threading.Event()
                        stream = pool.submit(client.generate, request(name, max_tokens=300),
                                             on_response=lambda r: r.deltas and begun.set())
                        self.assertTrue(begun.wait(60))
                        client.worker.UnloadAdapter(worker_pb2.UnloadAdapterRequest(name=name), timeout=60)
                        with self.assertRaises(grpc.RpcError) as failed:
                            client.generate(request(name))
                        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)
                        self.assertEqual(stream.result().ids[0][:40], self.expected[name].ids[0])
            finally:
                ended.set()
            for stream in streams:
                stream.result()
        self.assertEqual(set(counts), {*NAMES[:3], "base"})

    def test_streams_of_a_killed_worker_go_on_where_the_adapter_has_to_be_read(self):
        workers = {name: self.start_worker(name) for name in ("w0", "w1")}
        gateway = fleet.start_gateway(list(workers.values()))
        self.programs.append(gateway)
        client = fleet.Client(gateway.address)
        for worker in workers.values():
            self.wait_for(fleet.Client(worker.address), NAMES)

        def is_described():
            models = client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True, timeout=60).models
            return {m.name for m in models if m.num_workers == 2 and not m.undescribed} >= {"base", *NAMES}
        fleet.wait_until(is_described, "all adapters at both workers")
        # No worker has read the adapter yet, so the one that goes on has to.
        accepted_by = []

        def kill(response):
            if response.HasField("accepted"):
                accepted_by.append(response.accepted.worker)
            if response.deltas and len(accepted_by) == 1:
                workers[accepted_by[0]].process.kill()

        cut = client.generate(request(NAMES[4], max_tokens=400), on_response=kill)
        self.assertEqual(cut.summary.migrations, 1)
        self.assertFalse(cut.summary.inexact)
        self.assertEqual(sorted(accepted_by), sorted(workers))
        whole = client.generate(request(NAMES[4], max_tokens=400))
        self.assertEqual(cut.comparable(), whole.comparable())
        self.assertEqual(cut.ids[0][:40], self.expected[NAMES[4]].ids[0])

    def test_gateways_forget_what_is_unloaded_everywhere(self):
        worker = self.start_worker("w0")
        # Longer than the client waits.
        gateway = fleet.start_gateway([worker], "--no_worker_wait=10m")
        self.programs.append(gateway)
        direct, client = fleet.Client(worker.address), fleet.Client(gateway.address)
        self.wait_for(direct, NAMES)

        def names():
            models = client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True, timeout=60).models
            return {m.name for m in models}
        fleet.wait_until(lambda: names() == {"base", *NAMES}, "all adapters")
        self.check(client, NAMES[0])
        direct.worker.UnloadAdapter(worker_pb2.UnloadAdapterRequest(name=NAMES[0]), timeout=60)
        fleet.wait_until(lambda: names() == {"base", *NAMES[1:]}, "one adapter less")
        with self.assertRaises(grpc.RpcError) as failed:
            client.generate(request(NAMES[0]))
        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)
        self.check(client, NAMES[1])

    def post(self, gateway, path, **body):
        """The HTTP status and the JSON of an answer."""
        asked = urllib.request.Request(f"http://{gateway.http_address}{path}", json.dumps(body).encode(),
                                       {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def test_all_workers_are_updated_by_the_gateway(self):
        root = pathlib.Path(self.folder.name) / "updated"
        (root / "more").mkdir(parents=True)
        shutil.copytree(self.root / NAMES[6], root / "more" / "it")
        workers = [self.start_worker(name, root=root) for name in ("w0", "w1")]
        gateway = fleet.start_gateway(workers, "--allow_lora_updates")
        self.programs.append(gateway)
        client = fleet.Client(gateway.address)
        client.wait_for_model(num_workers=2)
        status, answer = self.post(gateway, "/v1/load_lora_adapter", lora_name=NAMES[6], lora_path=str(root / "more/it"))
        self.assertEqual((status, answer), (200, {"lora_name": NAMES[6], "model": "base", "workers": [
            {"worker": "w0", "code": "OK"}, {"worker": "w1", "code": "OK"}]}))

        def models():
            with urllib.request.urlopen(f"http://{gateway.http_address}/v1/models", timeout=60) as listed:
                return [model["id"] for model in json.load(listed)["data"]]
        fleet.wait_until(lambda: models() == [NAMES[6], "base"], "the adapter")
        for _ in range(4):
            self.check(client, NAMES[6])
        self.assertEqual(self.post(gateway, "/v1/unload_lora_adapter", lora_name=NAMES[6])[0], 200)
        fleet.wait_until(lambda: models() == ["base"], "no adapter")
        self.assertEqual(self.post(gateway, "/v1/completions", model=NAMES[6], prompt="a")[0], 404)
        self.assertEqual(self.post(gateway, "/v1/unload_lora_adapter", lora_name=NAMES[6])[0], 404)

        # A worker without a folder fails, and says so.
        third = fleet.start_worker(fleet.DEMO_MODEL, *FLAGS, "--worker_name=w2")
        mixed = fleet.start_gateway([*workers, third], "--allow_lora_updates")
        self.programs += [third, mixed]
        fleet.Client(mixed.address).wait_for_model(num_workers=3)
        status, answer = self.post(mixed, "/v1/load_lora_adapter", lora_name="x", lora_path="more/it")
        self.assertEqual(status, 400)
        self.assertEqual([worker["code"] for worker in answer["workers"]], ["OK", "OK", "FAILED_PRECONDITION"])
        self.assertIn("--lora_root", answer["workers"][2]["message"])
        self.assertIn("1 of 3 workers failed", answer["error"]["message"])

    def test_updates_under_load_fail_no_request_at_any_worker(self):
        root = pathlib.Path(self.folder.name) / "updated_under_load"
        (root / "more").mkdir(parents=True)
        for name in NAMES[:2]:
            shutil.copytree(self.root / name, root / name)
        for name in NAMES[2:4]:
            shutil.copytree(self.root / name, root / "more" / name)
        workers = [self.start_worker(name, "--max_lora_adapters=4", root=root) for name in ("w0", "w1", "w2")]
        gateway = fleet.start_gateway(workers, "--allow_lora_updates")
        self.programs.append(gateway)
        client = fleet.Client(gateway.address)

        def wait_for(*names):
            def is_so():
                models = client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True, timeout=60).models
                return {m.name for m in models if m.num_workers == 3 and not m.undescribed} == {"base", *names}
            fleet.wait_until(is_so, f"{names} at all workers")
        wait_for(*NAMES[:2])
        ended = threading.Event()
        counts = {}

        def generate(name):
            while not ended.is_set():
                self.check(client, name)
                counts[name] = counts.get(name, 0) + 1

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            streams = [pool.submit(generate, name) for name in (*NAMES[:2], "base") for _ in range(2)]
            try:
                for _ in range(3):
                    for name in NAMES[2:4]:
                        status, answer = self.post(gateway, "/v1/load_lora_adapter", lora_name=name,
                                                   lora_path=f"more/{name}")
                        self.assertEqual(status, 200, answer)
                        wait_for(*NAMES[:2], name)
                        for _ in range(4):
                            self.check(client, name)
                        status, answer = self.post(gateway, "/v1/unload_lora_adapter", lora_name=name)
                        self.assertEqual(status, 200, answer)
                        wait_for(*NAMES[:2])
                        with self.assertRaises(grpc.RpcError) as failed:
                            client.generate(request(name))
                        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)
            finally:
                ended.set()
            for stream in streams:
                stream.result()
        self.assertEqual(set(counts), {*NAMES[:2], "base"})

    def test_an_adapter_whose_files_are_gone_is_told_at_once(self):
        root = pathlib.Path(self.folder.name) / "vanishing"
        (root / "more").mkdir(parents=True)
        for name in NAMES[:2]:
            shutil.copytree(self.root / name, root / name)
        worker = self.start_worker("w0", "--max_lora_adapters=2", root=root)
        # Longer than the client waits.
        gateway = fleet.start_gateway([worker], "--no_worker_wait=10m")
        self.programs.append(gateway)
        direct, client = fleet.Client(worker.address), fleet.Client(gateway.address)
        self.wait_for(direct, NAMES[:2])

        def lose():
            shutil.copytree(self.root / NAMES[2], root / "more" / "it")
            direct.worker.LoadAdapter(worker_pb2.LoadAdapterRequest(name="it", path="more/it"), timeout=60)
            shutil.rmtree(root / "more" / "it")
            for name in NAMES[:2]:
                self.check(direct, name)
            self.assertFalse(self.adapters(direct)["it"], "it was evicted")

        lose()
        with self.assertRaises(grpc.RpcError) as failed:
            direct.generate(request("it"))
        self.assertEqual(failed.exception.code(), grpc.StatusCode.UNAVAILABLE)
        self.assertIn("more/it", failed.exception.details())
        self.assertNotIn(str(root), failed.exception.details())
        self.wait_for(direct, NAMES[:2])
        lose()

        def is_known():
            models = client.inference.ListModels(pb.ListModelsRequest(), wait_for_ready=True, timeout=60).models
            return "it" in {m.name for m in models}
        fleet.wait_until(is_known, "the adapter at the gateway")
        with self.assertRaises(grpc.RpcError) as failed:
            client.generate(request("it"))
        self.assertEqual(failed.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_paths_stay_below_the_root(self):
        outside = lora_adapters.write(fleet.DEMO_MODEL, pathlib.Path(self.folder.name) / "outside")
        root = pathlib.Path(self.folder.name) / "linked"
        root.mkdir()
        (root / "link").symlink_to(outside)
        client = fleet.Client(self.start_worker("w0", root=root).address)
        client.wait_for_model()
        for path in (str(outside), "link", "../outside", "/"):
            with self.assertRaises(grpc.RpcError) as failed:
                client.worker.LoadAdapter(worker_pb2.LoadAdapterRequest(name="x", path=path), timeout=60)
            self.assertEqual(failed.exception.code(), grpc.StatusCode.PERMISSION_DENIED, path)
        self.assertEqual(self.adapters(client), {})


if __name__ == "__main__":
    unittest.main()
