#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stock clients run whole tool loops (call, result, answer), streamed and not, and parse what matches a
schema. Each says what plain HTTP says."""
import json
import pathlib
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from base import *  # noqa: E402

LOOPS = pathlib.Path(__file__).resolve().parent
# As a client makes it of its own class.
SCHEMA = {"type": "object", "properties": {
    "name": {"type": "string", "enum": ["Mira", "Tom"]}, "city": {"type": "string", "enum": ["Oslo", "Lisbon"]},
    "number": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["name", "city", "number"], "additionalProperties": False}
PARSED = " parsed"
LOOP = "call answered streamed_call streamed_answered"
PYTHON = installed("python", "this client")
NODE = installed("node", "this client")
FRAMEWORKS = installed("loops", "this client")


class LoopsTest(ClientsTest):
    @classmethod
    def answers(cls):
        expected = super().answers()
        parsed = cls.content(QUESTION, max_tokens=400, response_format={
            "type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}})
        return {**expected, "parsed": json.loads(parsed), "streamed_parsed": json.loads(parsed),
                "streamed_call": expected["call"], "streamed_answered": expected["answered"]}

    def environment(self, **more):
        return super().environment(**{"PYTHONPATH": str(HERE), "OPENAI_AGENTS_DISABLE_TRACING": "1", **more})

    def python_loop(self, script, environment="python", names=LOOP + PARSED):
        self.check(INSTALLED / environment / "bin/python", LOOPS / script, names=names)

    def node_loop(self, script, names=LOOP + PARSED):
        # Modules are looked for beside the script.
        for path in (HERE / "ask.mjs", *LOOPS.glob("*.mjs")):
            shutil.copy(path, self.folder)
        modules = self.folder / "node_modules"
        if not modules.exists():
            modules.symlink_to(INSTALLED / "node/node_modules")
        self.check("node", self.folder / script, names=names)


class PythonLoopsTest(LoopsTest):
    @PYTHON
    def test_openai(self):
        self.python_loop("openai_loop.py", names=LOOP + PARSED + " streamed_parsed")

    @FRAMEWORKS
    def test_openai_of_another_major_version(self):
        self.python_loop("openai_loop.py", "loops", names=LOOP + PARSED + " streamed_parsed")

    @PYTHON
    def test_langchain(self):
        self.python_loop("langchain_loop.py", names=LOOP + PARSED + " streamed_parsed")

    @PYTHON
    def test_pydantic_ai(self):
        self.python_loop("pydantic_ai_loop.py", names=LOOP + PARSED + " streamed_parsed")

    @FRAMEWORKS
    def test_instructor(self):
        self.python_loop("instructor_loop.py", "loops", names="call answered parsed streamed_parsed")

    @FRAMEWORKS
    def test_openai_agents(self):
        self.python_loop("agents_loop.py", "loops", names=LOOP + PARSED + " streamed_parsed")


class NodeLoopsTest(LoopsTest):
    @NODE
    def test_openai(self):
        self.node_loop("openai_loop.mjs", names=LOOP + PARSED + " streamed_parsed")

    @NODE
    def test_langchain(self):
        self.node_loop("langchain_loop.mjs")

    @NODE
    def test_ai_sdk(self):
        self.node_loop("ai_sdk_loop.mjs", names=LOOP + PARSED + " streamed_parsed")


if __name__ == "__main__":
    unittest.main()
