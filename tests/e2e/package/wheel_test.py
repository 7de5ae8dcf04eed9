#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package as a user gets it: the wheel is built and installed, its programs serve, and its
client goes on after losses."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BUILD = fleet.ROOT / "deploy/python/build_wheel.py"
QUESTION = [{"role": "user", "content": "Mira lives in Oslo. Where does Mira live?"}]
TOOL = {"name": "find_person", "description": "Finds a person.", "parameters": {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 12}},
    "required": ["name"], "additionalProperties": False}}
LONG = {"temperature": 1, "seed": 7, "max_tokens": 400, "ignore_eos": True}

# The beginning of the second call was received by another program; nothing is sent of it again.
GOES_ON_INSIDE_A_CALL = """
import continuo
from continuo import messages as pb
rest = pb.Delta(tool_calls=[pb.ToolCall(index=1, arguments='"b"}')], finish_reason=3)
responses = [pb.GenerateResponse(sequence=5, deltas=[rest], summary=pb.Summary())]
class Responses:
    def __iter__(self):
        return iter(responses)
    def cancel(self):
        pass
request = pb.GenerateRequest()
request.continuation.received.sequence = 4
answer = continuo.Generation(lambda request, **_: Responses(), request).result()
assert [call.arguments for call in answer.tool_calls] == ["", '"b"}'], answer
assert answer.finish_reason == pb.FINISH_REASON_TOOL_CALLS, answer
"""


class Call:
    """A call of the installed client in a process of its own; its lines as they come."""

    def __init__(self, site, server, method, *arguments, client=None, cancel_after=None, **options):
        call = {"client": {"server": server, **(client or {})}, "method": method,
                "arguments": arguments, "options": options, "cancel_after": cancel_after}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "run_client.py"), json.dumps(call)],
            stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(site)})

    def next_line(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the client ended with {self.process.wait()}")
        return json.loads(line)

    def end(self):
        """Returns the last line."""
        with self.process:
            lines = [json.loads(line) for line in self.process.stdout]
        if self.process.returncode != 0:
            raise RuntimeError(f"the client ended with {self.process.returncode}")
        return lines[-1]


class PackageTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="continuo-package-")
        cls.addClassCleanup(cls.folder.cleanup)
        root = pathlib.Path(cls.folder.name)
        built = subprocess.run(
            [sys.executable, BUILD, f"--out={root / 'out'}", f"--bin={fleet.BIN}"], check=True,
            stdout=subprocess.PIPE, text=True)
        cls.wheel = pathlib.Path(built.stdout.splitlines()[-1])
        cls.site = root / "site"
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                        "--no-index", f"--target={cls.site}", cls.wheel], check=True)
        # Programs of the package, which load the libraries that it brings.
        cls.programs = {**os.environ, "PYTHONPATH": str(cls.site)}
        built_bin, fleet.BIN = fleet.BIN, cls.site / "bin"
        cls.addClassCleanup(setattr, fleet, "BIN", built_bin)
        cls.workers = [cls.start_worker() for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers, env=cls.programs)
        fleet.Client(cls.gateway.address).wait_for_model(num_workers=2)

    @classmethod
    def start_worker(cls):
        worker = fleet.start_worker(cls.site / "continuo/demo_model", "--threads=1",
                                    "--kv_cache_memory=32MiB", env=cls.programs)
        cls.addClassCleanup(worker.kill)
        return worker

    def call(self, method, *arguments, **options):
        return Call(self.site, self.gateway.address, method, *arguments, **options)

    def test_the_wheel_names_its_platform_and_what_it_brings(self):
        self.assertRegex(self.wheel.name, r"^continuo-[0-9.]+-py3-none-manylinux_2_\d+_\w+\.whl$")
        names = set(zipfile.ZipFile(self.wheel).namelist())
        for name in ("continuo/bin/continuo", "continuo/py.typed", "continuo/v1/inference_pb2.pyi",
                     "continuo/demo_model/config.json"):
            self.assertIn(name, names)
        self.assertTrue(any(name.endswith("licenses/THIRD_PARTY_NOTICES.md") for name in names))

    def test_an_answer(self):
        end = self.call("chat", QUESTION, temperature=0).end()
        self.assertIn("Oslo", end["answers"]["0"]["text"])
        self.assertEqual(end["completion_tokens"], len(end["answers"]["0"]["token_ids"]))

    def test_prompts_of_ids_and_many_sequences(self):
        ids = self.call("tokenize", "Mira lives").end()["result"]
        self.assertEqual(self.call("detokenize", ids).end()["result"], "Mira lives")
        by_ids = self.call("generate", ids, seed=3, max_tokens=9, num_sequences=3).end()
        by_text = self.call("generate", "Mira lives", seed=3, max_tokens=9, num_sequences=3).end()
        self.assertEqual(sorted(by_ids["answers"]), ["0", "1", "2"])
        self.assertEqual(by_ids["answers"], by_text["answers"])

    def test_calls_and_schemas(self):
        end = self.call("chat", QUESTION, tools=[TOOL], tool_choice="required", seed=1).end()
        call = end["answers"]["0"]["tool_calls"][0]
        self.assertEqual(call["name"], "find_person")
        self.assertEqual(list(json.loads(call["arguments"])), ["name"])
        end = self.call("chat", QUESTION, seed=1, choices=["yes", "no"]).end()
        self.assertIn(end["answers"]["0"]["text"], ("yes", "no"))
        schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 9}},
                  "required": ["a"], "additionalProperties": False}
        end = self.call("chat", QUESTION, seed=1, json_schema=schema).end()
        self.assertIsInstance(json.loads(end["answers"]["0"]["text"])["a"], int)

    def test_errors_name_the_field(self):
        end = self.call("generate", "a", temperature=1000).end()
        self.assertEqual((end["error"], end["field"]), ("INVALID_ARGUMENT", "sampling.temperature"))
        end = self.call("generate", "a", regex="a", choices=["a"]).end()
        self.assertEqual(end["error"], "ValueError")
        end = self.call("chat", [{"role": "user", "contents": "a"}]).end()
        self.assertIn("contents", end["message"])
        end = self.call("generate", "a", model="nobody").end()
        self.assertEqual(end["error"], "NOT_FOUND")
        nowhere = f"127.0.0.1:{fleet.free_port()}"
        self.assertEqual(Call(self.site, nowhere, "models").end()["error"], "UNAVAILABLE")

    def test_a_request_that_goes_on_inside_a_call_gets_its_rest(self):
        subprocess.run([sys.executable, "-c", GOES_ON_INSIDE_A_CALL], env=self.programs, check=True)

    def test_cancel(self):
        end = self.call("generate", "Mira", cancel_after=2, **LONG).end()
        self.assertEqual(end["error"], "CANCELLED")

    def test_a_stream_survives_its_worker(self):
        undisturbed = self.call("generate", "Mira", **LONG).end()
        call = self.call("generate", "Mira", **LONG)
        call.next_line()
        # Both are killed one after the other; each is replaced at its address.
        for index, worker in enumerate(self.workers):
            worker.kill()
            port = worker.address.rsplit(":", 1)[1]
            self.workers[index] = fleet.start_worker(
                self.site / "continuo/demo_model", "--threads=1", "--kv_cache_memory=32MiB",
                port=port, env=self.programs)
            self.addClassCleanup(self.workers[index].kill)
            fleet.Client(self.gateway.address).wait_for_model(num_workers=2)
        end = call.end()
        self.assertEqual(end.get("answers"), undisturbed["answers"], end)
        self.assertEqual(end["num_reconnects"], 0)

    def test_a_stream_survives_its_gateway(self):
        undisturbed = self.call("generate", "Mira", **LONG).end()
        port = fleet.free_port()
        gateway = fleet.start_gateway(self.workers, port=port, env=self.programs)
        fleet.Client(gateway.address).wait_for_model(num_workers=2)
        call = Call(self.site, gateway.address, "generate", "Mira", **LONG)
        call.next_line()
        gateway.kill()
        gateway = fleet.start_gateway(self.workers, port=port, env=self.programs)
        self.addCleanup(gateway.kill)
        end = call.end()
        self.assertEqual(end.get("answers"), undisturbed["answers"], end)
        self.assertGreaterEqual(end["num_reconnects"], 1)


if __name__ == "__main__":
    unittest.main()
