#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A real model, SmolLM2-135M-Instruct, with and without a grammar: schemas, choices, regular
expressions, tool loops, and thoughts that its prompt asks for. With a grammar every answer is what was
asked for; without, some are: the table tells. scripts/setup.sh --all installs the model.

    smollm2_test.py [--json=FILE]    also writes the counts there
"""
import argparse
import concurrent.futures
import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

import jsonschema

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402
import openai  # noqa: E402

OPTIONS = argparse.Namespace(json="")
MODEL = fleet.ROOT / "build/smollm2/SmolLM2-135M-Instruct"
AT_ONCE = 16
# Its own template, with what those of larger models have: tools as Hermes writes them, and a thought
# that the prompt opens.
TEMPLATE = """
{%- if tools %}{{- '<|im_start|>system\\nYou may call a function. The functions are:\\n' }}
{%- for tool in tools %}{{- tool.function | tojson + '\\n' }}{%- endfor %}
{{- 'Call one by writing\\n<tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role != 'system' %}
{{- '<|im_start|>system\\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + ('user' if message.role == 'tool' else message.role) + '\\n' }}
{{- ('The function says: ' if message.role == 'tool' else '') + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": ' + call.function.name | tojson + ', "arguments": '
    + call.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}{{- '<|im_end|>\\n' }}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking %}{{- '<think>\\n' }}{%- endif %}{%- endif %}
""".strip()

PEOPLE = [("Anna", 34, "Paris"), ("Bruno", 51, "Rome"), ("Chen", 27, "Beijing"), ("Dana", 45, "Cairo"),
          ("Emil", 62, "Berlin"), ("Farah", 19, "Tehran"), ("Goran", 38, "Zagreb"), ("Hana", 23, "Tokyo"),
          ("Ivan", 57, "Sofia"), ("Jana", 30, "Prague"), ("Karl", 71, "Vienna"), ("Lena", 25, "Oslo"),
          ("Marco", 49, "Milan"), ("Nora", 33, "Dublin"), ("Omar", 41, "Tunis"), ("Petra", 29, "Bonn")]
PERSON = {"type": "object", "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "city": {"type": "string", "maxLength": 20}}, "required": ["name", "age", "city"],
    "additionalProperties": False}
REVIEWS = [("I love this phone, it is wonderful.", "positive"), ("A terrible film. I hated it.", "negative"),
           ("The food was delicious and the staff friendly.", "positive"),
           ("It broke after a day. What a waste of money.", "negative"),
           ("The best book that I have read this year!", "positive"),
           ("Awful service, we will never come back.", "negative"),
           ("A great hotel with a beautiful view.", "positive"), ("Boring, slow and far too long.", "negative"),
           ("My children adore this game.", "positive"), ("The room was dirty and loud.", "negative"),
           ("Excellent quality, I am very happy.", "positive"), ("It never worked. I want a refund.", "negative")]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
          "November", "December"]
DATE = r"\d{4}-\d{2}-\d{2}"
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Get the weather in a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}},
                   "required": ["city"], "additionalProperties": False}}}


def is_person(text):
    try:
        jsonschema.validate(json.loads(text), PERSON)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True


@unittest.skipUnless((MODEL / "config.json").exists(), "scripts/setup.sh --all installs SmolLM2")
class SmolLm2Test(unittest.TestCase):
    table = {}

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-smollm2-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        model = cls.folder / "smollm2"
        model.mkdir()
        for path in MODEL.iterdir():
            (model / path.name).symlink_to(path)
        config = json.loads((MODEL / "tokenizer_config.json").read_text())
        config["chat_template"] = TEMPLATE
        (model / "tokenizer_config.json").unlink()
        (model / "tokenizer_config.json").write_text(json.dumps(config))
        cls.workers = [fleet.start_worker(model, "--weights=fp32", "--threads=2", "--max_context_tokens=1024",
                                          "--kv_cache_memory=400MiB")]
        cls.addClassCleanup(lambda: [worker.kill() for worker in cls.workers])
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.addClassCleanup(cls.gateway.kill)
        fleet.Client(cls.gateway.address).wait_for_model()
        cls.client = openai.OpenAI(base_url=f"http://{cls.gateway.http_address}/v1", api_key="none", max_retries=0,
                                   timeout=300)

    @classmethod
    def tearDownClass(cls):
        print(f"\n{'':28} {'without':>18} {'with a grammar':>18}")
        for name, (free, guided) in cls.table.items():
            print(f"{name:28} {free:>18} {guided:>18}")
        if OPTIONS.json:
            pathlib.Path(OPTIONS.json).write_text(json.dumps(cls.table, indent=1) + "\n")

    def ask(self, messages, **more):
        if isinstance(messages, str):
            messages = [{"role": "user", "content": messages}]
        return self.client.chat.completions.create(
            model="smollm2", messages=messages, **{"temperature": 0, "max_tokens": 100, **more}).choices[0]

    def compare(self, name, cases, free, guided, is_valid, is_right):
        """Asks each case both ways. With a grammar all answers have to be valid."""
        counts = []
        for ask in (free, guided):
            with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                answers = list(pool.map(ask, cases))
            valid = [is_valid(answer) for answer in answers]
            right = sum(v and is_right(case, answer) for v, case, answer in zip(valid, cases, answers))
            counts.append(f"{sum(valid)} valid, {right} right")
            print(f"{name}: {answers[0]!r}", flush=True)
        self.assertTrue(all(valid), answers)
        self.table[f"{name} ({len(cases)})"] = counts
        return answers

    def test_schemas(self):
        prompt = ("{0} is {1} years old and lives in {2}. Write the person's name, age and city as a JSON object "
                  "with the members name, age and city. Write nothing else.")
        text = lambda choice: choice.message.content
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
        guided = lambda case: text(self.ask(prompt.format(*case), response_format=schema))
        answers = self.compare(
            "a person by schema", PEOPLE, lambda case: text(self.ask(prompt.format(*case))), guided, is_person,
            lambda case, answer: list(json.loads(answer).values()) == list(case))
        # Alone as beside others.
        self.assertEqual([guided(case) for case in PEOPLE[:3]], answers[:3])

    def test_choices(self):
        prompt = "Is this review positive or negative? Answer with one word.\n{0}"
        self.compare("a choice", REVIEWS, lambda case: self.ask(prompt.format(*case)).message.content,
                     lambda case: self.ask(prompt.format(*case), extra_body={"structured_outputs": {
                         "choice": ["positive", "negative"]}}).message.content,
                     lambda answer: answer in ("positive", "negative"), lambda case, answer: answer == case[1])

    def test_regular_expressions(self):
        cases = [(f"{2 * i + 3} {month} {1990 + 3 * i}", f"{1990 + 3 * i}-{i + 1:02}-{2 * i + 3:02}")
                 for i, month in enumerate(MONTHS)]
        prompt = "Write the date {0} as YYYY-MM-DD. Write nothing else."
        self.compare("a date by regex", cases, lambda case: self.ask(prompt.format(*case)).message.content,
                     lambda case: self.ask(prompt.format(*case),
                                           extra_body={"structured_outputs": {"regex": DATE}}).message.content,
                     lambda answer: re.fullmatch(DATE, answer) is not None, lambda case, answer: answer == case[1])

    def test_tool_loops(self):
        cities = [city for _, _, city in PEOPLE]
        asked = {city: {"role": "user", "content": f"What is the weather in {city}?"} for city in cities}

        def called(city, **more):
            return self.ask([asked[city]], tools=[WEATHER], parallel_tool_calls=False, **more)

        def is_call(choice):
            calls = choice.message.tool_calls or []
            if choice.finish_reason != "tool_calls" or [c.function.name for c in calls] != ["get_weather"]:
                return False
            try:
                jsonschema.validate(json.loads(calls[0].function.arguments), WEATHER["function"]["parameters"])
            except (ValueError, jsonschema.ValidationError):
                return False
            return True
        calls = self.compare(
            "a call", cities, called, lambda city: called(city, tool_choice="required"), is_call,
            lambda city, choice: json.loads(choice.message.tool_calls[0].function.arguments)["city"] == city)

        def answer(city, choice):
            call = choice.message.tool_calls[0]
            return self.ask([asked[city], choice.message.model_dump(exclude_none=True), {
                "role": "tool", "tool_call_id": call.id, "content": f"It is sunny in {city}, 21 degrees."}],
                tools=[WEATHER], tool_choice="none").message.content
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(answer, cities, calls))
        print(f"an answer: {answers[0]!r}", flush=True)
        told = sum("21" in text or "sunny" in text for text in answers)
        self.table[f"the result told ({len(cities)})"] = ["", f"{told} right"]
        self.assertGreater(told, len(cities) // 2)

    def test_thoughts_that_the_prompt_asks_for(self):
        shown = [{"role": "user", "content": "Zoe is 40 years old and lives in Lima. Think, and then write the name, "
                                             "age and city as JSON."},
                 {"role": "assistant", "content": "<think>\nThe name is Zoe, the age is 40, the city is Lima.\n</think>\n"
                                                  '{"name": "Zoe", "age": 40, "city": "Lima"}'}]

        def thought(case, **more):
            name, age, city = case
            choice = self.ask([*shown, {"role": "user", "content": shown[0]["content"].replace(
                "Zoe", name).replace("40", str(age)).replace("Lima", city)}], max_tokens=160, extra_body={
                    "chat_template_kwargs": {"enable_thinking": True}}, **more)
            return choice
        schema = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}

        def is_valid(choice):
            # One that does not end its thought has no answer to be wrong.
            reasoning = choice.message.model_extra.get("reasoning_content")
            self.assertNotIn("</think>", (choice.message.content or "") + (reasoning or ""))
            return bool(reasoning) and (choice.finish_reason == "length" or is_person(choice.message.content))
        self.compare("a thought, then a person", PEOPLE, thought,
                     lambda case: thought(case, response_format=schema), is_valid,
                     lambda case, choice: choice.finish_reason == "stop" and
                     list(json.loads(choice.message.content).values()) == list(case))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", default="")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])
