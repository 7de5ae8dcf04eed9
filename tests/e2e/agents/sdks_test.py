#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Responses and Messages by stock SDKs of both languages and by what stands on them: each answer is that of plain
chat completions, while nothing happens and while workers are killed in the middle of their answers."""
import json
import pathlib
import shutil
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "clients"))
from base import INSTALLED, QUESTION, TOO_LONG, TOO_LONG_FOR_MESSAGES, ClientsTest, installed  # noqa: E402
from kills import Kills  # noqa: E402

PYTHON = installed("python/bin/python", "this client")
NODE = installed("node/node_modules/@anthropic-ai", "this client")
TEXTS = "chat streamed usage streamed_usage"
ALL = TEXTS + " call answered parsed long"


class SdksTest(ClientsTest):
    @classmethod
    def answers(cls):
        schema = {"type": "object", "properties": {"name": {"type": "string", "enum": ["Mira", "Tom"]}},
                  "required": ["name"], "additionalProperties": False}
        parsed = cls.content(QUESTION, max_tokens=200, response_format={
            "type": "json_schema", "json_schema": {"name": "answer", "schema": schema}})
        return {**super().answers(), "parsed": json.loads(parsed)}

    def ask(self, script, names=ALL, api="", **errors):
        """Runs a script of this folder beside the modules that it imports."""
        for path in (*HERE.parent.glob("clients/ask.*"), HERE / script):
            shutil.copy(path, self.folder)
        command = [INSTALLED / "python/bin/python"]
        if script.endswith(".mjs"):
            command = ["node"]
            modules = self.folder / "node_modules"
            if not modules.exists():
                modules.symlink_to(INSTALLED / "node/node_modules")
        self.api = api
        self.check(*command, self.folder / script, names=names, **errors)

    def environment(self, **more):
        return super().environment(API=self.api, **more)

    @NODE
    def test_openai_node(self):
        self.ask("responses_client.mjs", too_long=("BadRequestError context_length_exceeded", TOO_LONG),
                 model="NotFoundError model_not_found", key="AuthenticationError invalid_api_key",
                 stored="BadRequestError")

    @NODE
    def test_anthropic_node(self):
        self.ask("messages_client.mjs", ALL + " stopped", too_long=("BadRequestError", TOO_LONG_FOR_MESSAGES),
                 model="NotFoundError", key="AuthenticationError", path="NotFoundError")

    @NODE
    def test_langchain_node_over_responses(self):
        self.ask("langchain_client.mjs", api="responses", too_long=TOO_LONG, model="model_not_found",
                 key="invalid_api_key")

    @NODE
    def test_langchain_node_over_messages(self):
        self.ask("langchain_client.mjs", api="messages", too_long=TOO_LONG_FOR_MESSAGES, model="not_found_error",
                 key="authentication_error")

    @PYTHON
    def test_langchain_over_responses(self):
        self.ask("langchain_client.py", api="responses", too_long=TOO_LONG, model="model_not_found",
                 key="invalid_api_key")

    @PYTHON
    def test_langchain_over_messages(self):
        self.ask("langchain_client.py", api="messages", too_long=TOO_LONG_FOR_MESSAGES, model="not_found_error",
                 key="authentication_error")

    @PYTHON
    def test_litellm_over_responses(self):
        self.ask("litellm_client.py", TEXTS, "responses", model="NotFoundError", key="AuthenticationError")

    @PYTHON
    def test_litellm_over_messages(self):
        self.ask("litellm_client.py", TEXTS + " call answered", "messages", model="NotFoundError",
                 key="AuthenticationError")


class KilledTest(Kills, SdksTest):
    pass


if __name__ == "__main__":
    unittest.main()
