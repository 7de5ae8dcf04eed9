#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""OpenAI's Responses and Anthropic's Messages by their stock SDKs, against a real gateway and two workers.
Each says what chat completions say: whole, streamed, with a tool's loop, a schema, and while the worker of
a stream is killed."""
import json
import pathlib
import sys
import typing
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import anthropic  # noqa: E402
import fleet  # noqa: E402
import openai  # noqa: E402
import pydantic  # noqa: E402
from kills import Link  # noqa: E402

MODEL = "demo-model"
QUESTION = "Mira lives in Oslo and plays the violin. Where does Mira live?"
LONG_QUESTION = "Tell me a story."
TOOL_QUESTION, TOOL_RESULT = "Where is Mira?", "Lisbon"
PARAMETERS = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
DESCRIPTION = "Tells where somebody is."
CHAT_TOOL = {"type": "function", "function": {
    "name": "find_person", "description": DESCRIPTION, "parameters": PARAMETERS}}
RESPONSES_TOOL = {"type": "function", **CHAT_TOOL["function"], "strict": False}
MESSAGES_TOOL = {"name": "find_person", "description": DESCRIPTION, "input_schema": PARAMETERS}


# A newer SDK leaves it to the body.
GREEDY = {"temperature": 0}


class Place(pydantic.BaseModel, extra="forbid"):
    city: typing.Literal["Oslo", "Lisbon"]
    number: int = pydantic.Field(ge=0, le=9)


class AgentApisTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = [cls.start_worker() for _ in range(2)]
        cls.is_armed, cls.victim = False, None
        cls.links = [Link(worker.address, lambda *piece, i=i: cls.cut(i, *piece))
                     for i, worker in enumerate(cls.workers)]
        cls.gateway = fleet.start_gateway([link.address for link in cls.links])
        cls.url = f"http://{cls.gateway.http_address}"
        fleet.Client(cls.gateway.address).wait_for_model(num_workers=2)
        cls.openai = openai.OpenAI(base_url=cls.url + "/v1", api_key="none", max_retries=0)
        cls.anthropic = anthropic.Anthropic(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def cut(cls, i, num_tokens, is_end):
        """Kills worker `i` in the middle of an answer, once where armed."""
        if not cls.is_armed or num_tokens < 3 or is_end:
            return False
        cls.is_armed, cls.victim = False, i
        cls.links[i].target = None
        cls.workers[i].kill()
        return True

    @staticmethod
    def start_worker():
        return fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()
        for link in cls.links:
            link.close()

    def chat(self, messages, **more):
        return self.openai.chat.completions.create(
            model=MODEL, messages=messages, temperature=0, **{"max_tokens": 60, **more}).choices[0].message

    def answer(self):
        return self.chat([{"role": "user", "content": QUESTION}]).content

    def tool_answer(self):
        called = self.chat([{"role": "user", "content": TOOL_QUESTION}], tools=[CHAT_TOOL])
        (call,) = called.tool_calls
        told = self.chat([{"role": "user", "content": TOOL_QUESTION}, called.model_dump(exclude_none=True),
                          {"role": "tool", "tool_call_id": call.id, "content": TOOL_RESULT}],
                         tools=[CHAT_TOOL])
        return json.loads(call.function.arguments), told.content

    # Responses.

    def response(self, **more):
        return self.openai.responses.create(
            model=MODEL, temperature=0, **{"max_output_tokens": 60, "store": False, **more})

    def test_responses(self):
        response = self.response(input=QUESTION, metadata={"a": "b"})
        self.assertEqual(response.output_text, self.answer())
        self.assertEqual(response.status, "completed")
        self.assertEqual(response.metadata, {"a": "b"})
        self.assertGreater(response.usage.input_tokens, 0)
        self.assertEqual(response.usage.total_tokens,
                         response.usage.input_tokens + response.usage.output_tokens)
        cut = self.response(input=QUESTION, max_output_tokens=2)
        self.assertEqual(cut.status, "incomplete")
        self.assertEqual(cut.incomplete_details.reason, "max_output_tokens")

    def test_responses_streamed(self):
        events = list(self.response(input=QUESTION, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        self.assertEqual(text, self.answer())
        self.assertEqual(events[0].type, "response.created")
        self.assertEqual(events[-1].type, "response.completed")
        self.assertEqual(events[-1].response.output_text, text)
        with self.openai.responses.stream(model=MODEL, temperature=0, input=QUESTION,
                                          max_output_tokens=60) as stream:
            self.assertEqual(stream.get_final_response().output_text, text)

    def test_a_tool_loop_of_responses(self):
        arguments, told = self.tool_answer()
        for streamed in (False, True):
            history = [{"role": "user", "content": TOOL_QUESTION}]
            ask = dict(input=history, tools=[RESPONSES_TOOL, {"type": "web_search"}],
                       include=["reasoning.encrypted_content"])
            first = (list(self.response(stream=True, **ask))[-1].response if streamed
                     else self.response(**ask))
            call = first.output[-1]
            self.assertEqual((call.type, call.name), ("function_call", "find_person"))
            self.assertEqual(json.loads(call.arguments), arguments)
            history += [item.model_dump(exclude_none=True) for item in first.output]
            history.append({"type": "function_call_output", "call_id": call.call_id, "output": TOOL_RESULT})
            self.assertEqual(self.response(**ask).output_text, told)

    def test_tools_that_are_no_functions_are_told(self):
        raw = self.openai.responses.with_raw_response.create(
            model=MODEL, input=QUESTION, max_output_tokens=2,
            tools=[RESPONSES_TOOL, {"type": "web_search"}])
        self.assertEqual(raw.headers["x-skipped-tools"], "web_search")

    def test_responses_are_parsed(self):
        response = self.openai.responses.parse(
            model=MODEL, input=QUESTION, temperature=0, max_output_tokens=400, text_format=Place)
        self.assertIsInstance(response.output_parsed, Place)

    def test_errors_of_responses(self):
        for body, param in (({"input": QUESTION, "store": True}, "store"),
                            ({"input": QUESTION, "previous_response_id": "resp_x"}, "previous_response_id"),
                            ({"input": [{"role": "user"}]}, "input[0].content"),
                            ({"input": QUESTION, "temperature": 1000}, "temperature"),
                            ({"input": "word " * 3000}, "input")):
            with self.assertRaises(openai.BadRequestError) as caught:
                self.openai.responses.create(model=MODEL, **body)
            self.assertEqual(caught.exception.param, param, body)
        with self.assertRaises(openai.NotFoundError):
            self.openai.responses.create(model="another", input=QUESTION)

    # Messages.

    def message(self, content, **more):
        return self.anthropic.messages.create(
            model=MODEL, messages=[{"role": "user", "content": content}],
            **{"max_tokens": 60, "extra_body": GREEDY, **more})

    def test_messages(self):
        message = self.message(QUESTION)
        self.assertEqual([block.type for block in message.content], ["text"])
        self.assertEqual(message.content[0].text, self.answer())
        self.assertEqual((message.role, message.model, message.stop_reason), ("assistant", MODEL, "end_turn"))
        self.assertGreater(message.usage.output_tokens, 0)
        counted = self.anthropic.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": QUESTION}]).input_tokens
        self.assertEqual(message.usage.input_tokens + message.usage.cache_read_input_tokens, counted)
        self.assertEqual(self.message(QUESTION, max_tokens=2).stop_reason, "max_tokens")
        stop = message.content[0].text[3:6]
        stopped = self.message(QUESTION, stop_sequences=[stop])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", stop))
        self.assertEqual(stopped.content[0].text, message.content[0].text.split(stop)[0])

    def test_messages_streamed(self):
        with self.anthropic.messages.stream(model=MODEL, extra_body=GREEDY, max_tokens=60, messages=[
                {"role": "user", "content": [{"type": "text", "text": QUESTION}]}]) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual(text, self.answer())
        self.assertEqual(final.content[0].text, text)
        whole = self.message(QUESTION)
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        self.assertEqual(final.usage.input_tokens + final.usage.cache_read_input_tokens,
                         whole.usage.input_tokens + whole.usage.cache_read_input_tokens)

    def test_an_answer_that_has_begun(self):
        begun = self.answer()[:4]
        whole = self.anthropic.messages.create(
            model=MODEL, extra_body=GREEDY, max_tokens=60,
            messages=[{"role": "user", "content": QUESTION}, {"role": "assistant", "content": begun}])
        expected = self.openai.chat.completions.create(
            model=MODEL, temperature=0, max_tokens=60, extra_body={"continue_final_message": True},
            messages=[{"role": "user", "content": QUESTION}, {"role": "assistant", "content": begun}])
        self.assertEqual(whole.content[0].text, expected.choices[0].message.content)

    def test_a_tool_loop_of_messages(self):
        arguments, told = self.tool_answer()
        for streamed in (False, True):
            ask = dict(model=MODEL, extra_body=GREEDY, max_tokens=60, tools=[MESSAGES_TOOL])
            history = [{"role": "user", "content": TOOL_QUESTION}]
            if streamed:
                with self.anthropic.messages.stream(messages=history, **ask) as stream:
                    first = stream.get_final_message()
            else:
                first = self.anthropic.messages.create(messages=history, **ask)
            self.assertEqual(first.stop_reason, "tool_use")
            call = first.content[-1]
            self.assertEqual((call.type, call.name, call.input), ("tool_use", "find_person", arguments))
            history += [{"role": "assistant", "content": first.content},
                        {"role": "user", "content": [
                            {"type": "tool_result", "tool_use_id": call.id, "content": TOOL_RESULT}]}]
            second = self.anthropic.messages.create(messages=history, **ask)
            self.assertEqual(second.content[0].text, told)

    def test_a_tool_runner_goes_on_without_a_thread(self):
        asked = []

        @anthropic.beta_tool
        def find_person(name: str) -> str:
            """Tells where somebody is."""
            asked.append(name)
            return TOOL_RESULT
        message = self.anthropic.beta.messages.tool_runner(
            model=MODEL, extra_body=GREEDY, max_tokens=60, tools=[find_person],
            messages=[{"role": "user", "content": TOOL_QUESTION}]).until_done()
        self.assertEqual(asked, ["Mira"])
        self.assertIn(TOOL_RESULT, message.content[0].text)

    def test_tool_choices_of_messages(self):
        schema = {"type": "object", "properties": {"name": {"enum": ["Mira", "Tom"]}}, "required": ["name"],
                  "additionalProperties": False}
        forced = self.message("Hello", max_tokens=200, tools=[{**MESSAGES_TOOL, "input_schema": schema}],
                              tool_choice={"type": "tool", "name": "find_person"})
        self.assertEqual(forced.content[-1].name, "find_person")
        self.assertIn(forced.content[-1].input["name"], ["Mira", "Tom"])

    def test_errors_of_messages(self):
        for body, text in (({"max_tokens": 5, "messages": []}, "messages: is empty"),
                           ({"max_tokens": 5, "messages": [{"role": "user", "content": "word " * 2000}]},
                            r"prompt is too long: [0-9]+ tokens > 1024 maximum"),
                           ({"max_tokens": 5, "extra_body": {"temperature": 1000},
                             "messages": [{"role": "user", "content": "x"}]}, "temperature: ")):
            with self.assertRaises(anthropic.BadRequestError) as caught:
                self.anthropic.messages.create(model=MODEL, **body)
            told = caught.exception.body
            self.assertEqual((told["type"], told["error"]["type"]), ("error", "invalid_request_error"))
            self.assertRegex(told["error"]["message"], text)
            self.assertEqual(told["request_id"], caught.exception.response.headers["request-id"])
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.anthropic.messages.create(model="another", max_tokens=5,
                                           messages=[{"role": "user", "content": "x"}])
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")

    def test_errors_of_http_itself_are_the_sdks(self):
        large = [{"role": "user", "content": "x" * (9 << 20)}]
        for ask, error, kind in (
                (lambda: self.anthropic.models.retrieve("nope"), anthropic.NotFoundError, "not_found_error"),
                (lambda: self.anthropic.messages.batches.list(), anthropic.NotFoundError, "not_found_error"),
                (lambda: self.anthropic.messages.create(model=MODEL, max_tokens=5, messages=large),
                 anthropic.APIStatusError, "request_too_large"),
                (lambda: self.anthropic.messages.count_tokens(model="nope", messages=[
                    {"role": "user", "content": "x"}]), anthropic.NotFoundError, "not_found_error")):
            with self.assertRaises(error) as caught:
                ask()
            told = caught.exception.body
            self.assertEqual((told["type"], told["error"]["type"]), ("error", kind))
            self.assertEqual(told["request_id"], caught.exception.response.headers["request-id"])
            self.assertTrue(told["request_id"])
        counted = self.anthropic.messages.with_raw_response.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": "x"}])
        self.assertTrue(counted.headers["request-id"])

    def test_models_in_the_form_of_the_caller(self):
        (model,) = self.anthropic.models.list().data
        self.assertEqual((model.id, model.type), (MODEL, "model"))
        self.assertEqual(self.anthropic.models.retrieve(MODEL).id, MODEL)
        (model,) = self.openai.models.list().data
        self.assertEqual((model.id, model.object), (MODEL, "model"))

    # Both.

    def test_the_worker_of_a_stream_is_killed(self):
        def responses():
            events = self.response(input=LONG_QUESTION, max_output_tokens=300, stream=True)
            return "".join(e.delta for e in events if e.type == "response.output_text.delta")

        def messages():
            with self.anthropic.messages.stream(model=MODEL, extra_body=GREEDY, max_tokens=300, messages=[
                    {"role": "user", "content": LONG_QUESTION}]) as stream:
                return "".join(stream.text_stream)

        for ask in (responses, messages):
            expected = ask()
            cls = type(self)
            cls.victim, cls.is_armed = None, True
            self.assertEqual(ask(), expected)
            self.assertIsNotNone(cls.victim, "no worker was killed")
            cls.workers[cls.victim] = self.start_worker()
            cls.links[cls.victim].target = cls.workers[cls.victim].address
            fleet.Client(self.gateway.address).wait_for_model(num_workers=2)


if __name__ == "__main__":
    unittest.main()
