#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cases of Open Responses' acceptance tests (specification of 2026-04-24), each against its data types: a
response, its items and parts, and the events of a stream, which build the response that they end with."""
import json
import pathlib
import sys
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

TEXT, NUMBER, INTEGER, FLAG = (str,), (int, float), (int,), (bool,)
NULL, OBJECT, LIST = (type(None),), (dict,), (list,)
RESPONSE = {
    "id": TEXT, "object": TEXT, "created_at": INTEGER, "completed_at": INTEGER + NULL, "status": TEXT,
    "incomplete_details": OBJECT + NULL, "model": TEXT, "previous_response_id": TEXT + NULL,
    "instructions": TEXT + NULL, "output": LIST, "error": OBJECT + NULL, "tools": LIST,
    "tool_choice": TEXT + OBJECT, "truncation": TEXT, "parallel_tool_calls": FLAG, "text": OBJECT, "top_p": NUMBER,
    "presence_penalty": NUMBER, "frequency_penalty": NUMBER, "top_logprobs": INTEGER, "temperature": NUMBER,
    "reasoning": OBJECT + NULL, "usage": OBJECT + NULL, "max_output_tokens": INTEGER + NULL,
    "max_tool_calls": INTEGER + NULL, "store": FLAG, "background": FLAG, "service_tier": TEXT,
    "metadata": OBJECT, "safety_identifier": TEXT + NULL, "prompt_cache_key": TEXT + NULL,
}
USAGE = {"input_tokens": INTEGER, "output_tokens": INTEGER, "total_tokens": INTEGER,
         "input_tokens_details": OBJECT, "output_tokens_details": OBJECT}
ITEMS = {
    "message": {"id": TEXT, "status": TEXT, "role": TEXT, "content": LIST},
    "function_call": {"id": TEXT, "call_id": TEXT, "name": TEXT, "arguments": TEXT, "status": TEXT},
}
TEXT_PART = {"type": TEXT, "text": TEXT, "annotations": LIST, "logprobs": LIST}
TOOL = {"type": TEXT, "name": TEXT, "description": TEXT + NULL, "parameters": OBJECT + NULL, "strict": FLAG + NULL}
IN_ITEM = {"item_id": TEXT, "output_index": INTEGER}
IN_PART = {**IN_ITEM, "content_index": INTEGER}
EVENTS = {
    "response.created": {"response": OBJECT},
    "response.in_progress": {"response": OBJECT},
    "response.completed": {"response": OBJECT},
    "response.incomplete": {"response": OBJECT},
    "response.output_item.added": {"output_index": INTEGER, "item": OBJECT},
    "response.output_item.done": {"output_index": INTEGER, "item": OBJECT},
    "response.content_part.added": {**IN_PART, "part": OBJECT},
    "response.content_part.done": {**IN_PART, "part": OBJECT},
    "response.output_text.delta": {**IN_PART, "delta": TEXT, "logprobs": LIST},
    "response.output_text.done": {**IN_PART, "text": TEXT, "logprobs": LIST},
    "response.function_call_arguments.delta": {**IN_ITEM, "delta": TEXT},
    "response.function_call_arguments.done": {**IN_ITEM, "arguments": TEXT},
}
# The events that make an output item, in order; "+" is once or more.
ITEM_EVENTS = {
    "message": ["output_item.added", "content_part.added", "output_text.delta+", "output_text.done",
                "content_part.done", "output_item.done"],
    "function_call": ["output_item.added", "function_call_arguments.delta+", "function_call_arguments.done",
                      "output_item.done"],
}
FIND = {"type": "function", "name": "find_person", "description": "Tells where somebody is.",
        "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}
PIXEL = ("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YA"
         "AAAASUVORK5CYII=")


def said(role, content):
    return {"type": "message", "role": role, "content": content}


class OpenResponsesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
        cls.addClassCleanup(cls.worker.kill)
        cls.gateway = fleet.start_gateway([cls.worker])
        cls.addClassCleanup(cls.gateway.kill)
        fleet.Client(cls.gateway.address).wait_for_model()

    def post(self, **members):
        request = urllib.request.Request(
            f"http://{self.gateway.http_address}/v1/responses",
            json.dumps({"model": "demo-model", "temperature": 0, **members}).encode(),
            {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as response:
            return response.read().decode()

    def expect(self, types, thing, what):
        for name, kinds in types.items():
            self.assertIn(name, thing, what)
            value = thing[name]
            # A boolean of Python is an integer, too.
            self.assertTrue(isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)),
                            f"{what}: {name} is {value!r}")

    def expect_item(self, item):
        self.expect(ITEMS[item["type"]], item, item)
        self.assertIn(item["status"], ("in_progress", "completed", "incomplete"))
        for part in item.get("content", []):
            self.assertEqual(part["type"], "output_text")
            self.expect(TEXT_PART, part, part)

    def expect_response(self, response, is_over=True):
        self.expect(RESPONSE, response, "response")
        self.assertEqual(response["object"], "response")
        for tool in response["tools"]:
            self.expect(TOOL, tool, "tool")
        for item in response["output"]:
            self.expect_item(item)
        if is_over:
            self.assertIsNone(response["error"])
            self.assertIsNotNone(response["completed_at"])
            self.expect(USAGE, response["usage"], "usage")
            self.assertIsInstance(response["usage"]["input_tokens_details"]["cached_tokens"], int)
            self.assertIsInstance(response["usage"]["output_tokens_details"]["reasoning_tokens"], int)

    def ask(self, **members):
        """A whole response that has completed."""
        response = json.loads(self.post(**members))
        self.expect_response(response)
        self.assertEqual(response["status"], "completed")
        self.assertTrue(response["output"])
        return response

    def stream(self, **members):
        """The events of a stream, each as its type says, behind one another as the specification has them."""
        *blocks, rest = self.post(stream=True, **members).split("\n\n")
        self.assertEqual(rest, "")
        fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
        self.assertEqual(fields.pop()["data"], "[DONE]")
        events = [json.loads(field["data"]) for field in fields]
        self.assertEqual([event["type"] for event in events], [field["event"] for field in fields])
        self.assertEqual([event["sequence_number"] for event in events], list(range(len(events))))
        for event in events:
            self.expect(EVENTS[event["type"]], event, event["type"])
            if "response" in event:
                is_over = event is events[-1]
                self.expect_response(event["response"], is_over)
                self.assertEqual(event["response"]["status"], "completed" if is_over else "in_progress")
        self.assertEqual([event["type"] for event in (*events[:2], events[-1])],
                         ["response.created", "response.in_progress", "response.completed"])
        self.assertEqual(self.built(events[2:-1]), events[-1]["response"]["output"])
        return events

    def built(self, events):
        """The output that the events build, item by item."""
        output = []
        while events:
            item = events[0]["item"]
            for wanted in ITEM_EVENTS[item["type"]]:
                number = 0
                while number < len(events) and events[number]["type"] == "response." + wanted.rstrip("+"):
                    number += 1
                self.assertTrue(number == 1 or number > 1 and wanted[-1] == "+", (wanted, number, events[:2]))
                taken, events = events[:number], events[number:]
                for event in taken:
                    self.assertEqual(event["output_index"], len(output))
                    self.assertEqual(event.get("item_id", item["id"]), item["id"])
                    self.assertEqual(event.get("content_index", 0), 0)
                if wanted[-1] == "+":
                    whole = "".join(event["delta"] for event in taken)
                elif wanted.endswith(("text.done", "arguments.done")):
                    self.assertEqual(taken[0].get("text", taken[0].get("arguments")), whole)
                elif wanted == "content_part.done":
                    self.assertEqual(taken[0]["part"]["text"], whole)
            done = taken[0]["item"]
            self.assertEqual(done["status"], "completed")
            self.assertEqual(done.get("arguments") or done["content"][0]["text"], whole)
            output.append(done)
        return output

    def test_basic_text_response(self):
        response = self.ask(input=[said("user", "Where does Mira live?")])
        self.assertEqual(response["output"][0]["role"], "assistant")

    def test_streaming_response(self):
        question = [said("user", "Where does Mira live?")]
        events = self.stream(input=question)
        text = events[-1]["response"]["output"][0]["content"][0]["text"]
        self.assertEqual(text, self.ask(input=question)["output"][0]["content"][0]["text"])

    def test_system_prompt(self):
        def tokens(*items):
            return self.ask(input=list(items))["usage"]["input_tokens"]
        question = said("user", "Say hello.")
        alone, told = tokens(question), tokens(said("system", "You are a pirate."), question)
        self.assertGreater(told, alone)
        self.assertEqual(tokens(said("developer", "You are a pirate."), question), told)

    def test_tool_calling(self):
        response = self.ask(input=[said("user", "Where is Mira?")], tools=[FIND])
        (call,) = [item for item in response["output"] if item["type"] == "function_call"]
        self.assertEqual(call["name"], "find_person")
        self.assertIsInstance(json.loads(call["arguments"])["name"], str)

    def test_tool_calling_streaming(self):
        events = self.stream(input=[said("user", "Where is Mira?")], tools=[FIND])
        self.assertEqual([item["type"] for item in events[-1]["response"]["output"]], ["function_call"])

    def test_multi_turn(self):
        first = [said("user", "My name is Alice."), said("assistant", "Hello Alice! How can I help you?")]
        question = said("user", "What is my name?")
        self.assertGreater(self.ask(input=[*first, question])["usage"]["input_tokens"],
                           self.ask(input=[question])["usage"]["input_tokens"])

    def test_image_input_is_refused_by_a_model_of_text(self):
        with self.assertRaises(urllib.error.HTTPError) as refused:
            self.post(input=[said("user", [{"type": "input_text", "text": "What is it?"},
                                           {"type": "input_image", "image_url": PIXEL}])])
        self.assertEqual(refused.exception.code, 400)
        error = json.loads(refused.exception.read())["error"]
        self.assertEqual((error["type"], error["param"]), ("invalid_request_error", "input[0].content[1].type"))

    def test_an_answer_that_is_cut_is_incomplete(self):
        response = json.loads(self.post(input=[said("user", "Tell me a story.")], max_output_tokens=3))
        self.expect_response({**response, "completed_at": 0})
        self.assertEqual((response["status"], response["incomplete_details"]),
                         ("incomplete", {"reason": "max_output_tokens"}))


if __name__ == "__main__":
    unittest.main()
