#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Members of HTTP requests that other servers have, through gateway and workers: each does what its
row in docs/http.md says, and each refusal says what its client can do."""
import http.client
import json
import pathlib
import re
import signal
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Tell me of Mira."}]
LONG = {"prompt": "Mira lives", "max_tokens": 600, "ignore_eos": True, "seed": 3}

# (path, body, what the message has, param, code), all with status 400
REFUSED = [
    (CHAT, {"messages": HELLO, "temprature": 1}, 'no member of /v1/chat/completions; "temperature" is one',
     "temprature", None),
    (CHAT, {"messages": HELLO, "tools": [{}]}, "is needed", "tools[0].function", None),
    (CHAT, {"messages": HELLO, "response_format": {"type": "python"}}, 'must be "text"',
     "response_format.type", None),
    (COMPLETIONS, {"prompt": "a", "ebnf": "root ::= x"}, "write Lark", "ebnf", None),
    (CHAT, {"messages": HELLO, "prompt": "x"}, "is a member of /v1/completions", "prompt", None),
    (CHAT, {"messages": HELLO, "top_p": 1.5}, "top_p: 1.5 is not in [0, 1]", "top_p", None),
    (CHAT, {"messages": HELLO, "max_completion_tokens": 3, "min_tokens": 5},
     "5 is above max_completion_tokens, which is 3", "min_tokens", None),
    (CHAT, {"messages": HELLO, "chat_template_kwargs": {"messages": 1}},
     'chat_template_kwargs: may not set "messages"', "chat_template_kwargs", None),
    (CHAT, {"messages": HELLO, "chat_template": "{% if %}"}, "unexpected", "chat_template", None),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "is needed",
     "messages[0].content[0].text", None),
    (CHAT, {"messages": HELLO, "stop": ["a", ""]}, "has 0 bytes", "stop[1]", None),
    (CHAT, {"messages": HELLO, "stop_token_ids": [10**6]}, "outside the vocabulary",
     "stop_token_ids[0]", None),
    (CHAT, {"messages": HELLO, "allowed_token_ids": [1, 10**6]}, "outside the vocabulary",
     "allowed_token_ids[1]", None),
    (CHAT, {"messages": HELLO, "bad_words": ["x", ""]}, "has 0 bytes", "bad_words[1]", None),
    (COMPLETIONS, {"prompt": [5, 10**6]}, "outside the vocabulary", "prompt[1]", None),
    (CHAT, {"messages": [{"role": "user", "content": "word " * 3000}]},
     "This model's maximum context length is 1024 tokens. However, your messages have ", "messages",
     "context_length_exceeded"),
    (COMPLETIONS, {"prompt": [5] * 1025},
     "This model's maximum context length is 1024 tokens. However, your prompt has 1025 tokens. Please "
     "reduce the length of the prompt.", "prompt", "context_length_exceeded"),
    (COMPLETIONS, '{"prompt": "a",}', "at byte 15 (line 1, column 16): expected a name in double quotes "
     "after the comma, found }", None, None),
    (COMPLETIONS, "", "the body is empty", None, None),
]


def documented_members():
    """{"done", "harmless", "refused": {name: (routes, [values that ask for nothing])}}, as
    docs/http.md has them."""
    text = (fleet.ROOT / "docs/http.md").read_text()
    text = text.split("<!-- members:begin -->")[1].split("<!-- members:end -->")[0]
    rows = {}
    for kind, table in zip(("done", "harmless", "refused"), text.split("| --- | --- | --- | --- |")[1:]):
        rows[kind] = {}
        for line in table.split("\n"):
            if not line.startswith("| "):
                continue
            names, routes = re.split(r" \| ", line[2:])[:2]
            for name, values in re.findall(r"`([^`]+)`(?: \(([^)]*)\))?", names):
                rows[kind][name] = routes, [json.loads(v) for v in re.findall("`([^`]*)`", values)]
    return rows


class MembersTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB",
                                          "--allow_request_chat_template") for _ in range(2)]
        cls.gateway = fleet.start_gateway(cls.workers)
        cls.client = fleet.Client(cls.gateway.address)
        cls.client.wait_for_model(2)

    @classmethod
    def tearDownClass(cls):
        for program in (cls.gateway, *cls.workers):
            program.kill()

    def post(self, path, body):
        """(status, bytes of the body)."""
        connection = http.client.HTTPConnection(self.gateway.http_address, timeout=120)
        text = body if isinstance(body, str) else json.dumps(body)
        connection.request("POST", path, text, {"Content-Type": "application/json"})
        response = connection.getresponse()
        result = response.status, response.read()
        connection.close()
        return result

    def ask(self, path, **members):
        body = {"messages": HELLO} if path == CHAT else {"prompt": "Mira lives"}
        status, answer = self.post(path, {"seed": 3, "max_tokens": 24, **body, **members})
        self.assertEqual(status, 200, answer)
        return json.loads(answer)

    def prompt_ids(self, **members):
        return self.ask(CHAT, return_token_ids=True, max_tokens=1, **members)["prompt_token_ids"]

    def tokenize(self, text):
        return list(self.client.inference.Tokenize(pb.TokenizeRequest(
            text=text, omit_special_tokens=True)).token_ids)

    def detokenize(self, ids):
        return self.client.inference.Detokenize(pb.DetokenizeRequest(token_ids=ids)).text

    def test_refusals_say_what_is_wrong(self):
        for path, body, message, param, code in REFUSED:
            with self.subTest(body=str(body)[:100]):
                status, answer = self.post(path, body)
                error = json.loads(answer)["error"]
                self.assertEqual((status, error["type"], error["param"], error["code"]),
                                 (400, "invalid_request_error", param, code), error["message"])
                self.assertIn(message, error["message"])

    def test_the_tables_of_members_are_true(self):
        rows = documented_members()
        self.assertGreater(min(len(members) for members in rows.values()), 20)
        for path, route in ((CHAT, "chat"), (COMPLETIONS, "completions")):
            plain = self.ask(path, temperature=0)["choices"]
            harmless = {name: {"a": [1]} for name, (routes, _) in rows["harmless"].items()
                        if routes in ("both", route)}
            self.assertEqual(self.ask(path, temperature=0, **harmless)["choices"], plain)
            refused = {name: values for name, (routes, values) in rows["refused"].items()
                       if routes in ("both", route)}
            for i in range(max(map(len, refused.values()))):
                idle = {name: values[i] for name, values in refused.items() if i < len(values)}
                self.assertEqual(self.ask(path, temperature=0, **idle)["choices"], plain)
            for name in refused:
                with self.subTest(path + " " + name):
                    body = {"messages": HELLO} if path == CHAT else {"prompt": "a"}
                    status, answer = self.post(path, {**body, name: {"some": ["thing"]}})
                    self.assertEqual((status, json.loads(answer)["error"]["param"]), (400, name))

    def test_the_chat_template(self):
        head = "<|begin|><|user|>Tell me of Mira.<|end|>"
        self.assertEqual(self.prompt_ids(), self.tokenize(head + "<|assistant|>"))
        self.assertEqual(self.prompt_ids(add_generation_prompt=False), self.tokenize(head))
        template = "{{ messages[0].content }}{{ reasoning_effort }}{{ documents[0].text }}{{ x }}"
        self.assertEqual(self.prompt_ids(chat_template=template, reasoning_effort="low",
                                         documents=[{"text": " d"}],
                                         chat_template_kwargs={"x": " y"}),
                         self.tokenize("Tell me of Mira.low d y"))
        begun = HELLO + [{"role": "assistant", "content": "Mira is"}]
        continued = self.tokenize(head + "<|assistant|>Mira is")
        self.assertEqual(self.prompt_ids(messages=begun, continue_final_message=True,
                                         add_generation_prompt=False), continued)
        begun[-1]["prefix"] = True
        self.assertEqual(self.prompt_ids(messages=begun), continued)

    def test_truncation(self):
        whole = self.prompt_ids()
        self.assertEqual(self.prompt_ids(truncate_prompt_tokens=4), whole[-4:])
        self.assertEqual(self.prompt_ids(truncate_prompt_tokens=4, truncation_side="right"), whole[:4])
        answer = self.ask(COMPLETIONS, prompt=[5 + i % 100 for i in range(2000)],
                          truncate_prompt_tokens=-1, max_tokens=24, return_token_ids=True)
        self.assertEqual(answer["usage"]["prompt_tokens"], 1000)
        self.assertEqual(answer["choices"][0]["prompt_token_ids"],
                         [5 + i % 100 for i in range(1000, 2000)])

    def test_numbers_and_greedy(self):
        greedy = self.ask(COMPLETIONS, temperature=0)["choices"][0]["text"]
        self.assertEqual(self.ask(COMPLETIONS, top_p=0)["choices"][0]["text"], greedy)
        self.assertEqual(self.ask(COMPLETIONS, top_k=1.0, max_tokens=2.4e1)["choices"][0]["text"],
                         greedy)

    def test_stops(self):
        answer = self.ask(COMPLETIONS, temperature=0, return_token_ids=True, max_tokens=12)["choices"][0]
        text, ids = answer["text"], answer["token_ids"]
        cut = ids.index(ids[5]) + 1
        stopped = self.ask(COMPLETIONS, temperature=0, return_token_ids=True,
                           stop_token_ids=[ids[5]])["choices"][0]
        self.assertEqual(stopped["token_ids"], ids[:cut])
        self.assertEqual(stopped["finish_reason"], "stop")
        word = text[4:7]
        end = text.index(word) + len(word)
        for name in ("include_stop_str_in_output", "no_stop_trim"):
            kept = self.ask(COMPLETIONS, temperature=0, stop=word, **{name: True})
            self.assertEqual(kept["choices"][0]["text"], text[:end])
            kept = self.ask(COMPLETIONS, temperature=0, stop_token_ids=[ids[5]], **{name: True})
            self.assertEqual(kept["choices"][0]["text"], self.detokenize(ids[:cut]))
            self.assertNotEqual(kept["choices"][0]["text"], stopped["text"])

    def test_scores_of_the_prompt(self):
        answer = self.ask(COMPLETIONS, prompt_logprobs=2, return_token_ids=True)["choices"][0]
        scores, ids = answer["prompt_logprobs"], answer["prompt_token_ids"]
        self.assertIsNone(scores[0])
        self.assertEqual(len(scores), len(ids))
        for entry, token in zip(scores[1:], ids[1:]):
            self.assertIn(str(token), entry)
            self.assertEqual(sorted(e["rank"] for e in entry.values() if e["rank"]), [1, 2])
        self.assertEqual(len(self.ask(CHAT, prompt_logprobs=0)["prompt_logprobs"]),
                         len(self.prompt_ids()))

    def events(self, **members):
        """The chunks of a stream."""
        status, answer = self.post(COMPLETIONS, {"stream": True, **members})
        self.assertEqual(status, 200, answer)
        lines = [line[6:] for line in answer.decode().split("\n") if line.startswith("data: ")]
        self.assertEqual(lines.pop(), "[DONE]")
        return [json.loads(line) for line in lines]

    def test_usage_in_every_event(self):
        events = self.events(prompt="Mira lives", max_tokens=9, seed=3, return_token_ids=True,
                             stream_options={"continuous_usage_stats": True, "include_usage": True})
        prompt = events[0]["choices"][0]["prompt_token_ids"]
        count = 0
        for event in events:
            count += sum(len(c["token_ids"]) for c in event["choices"])
            self.assertEqual((event["usage"]["prompt_tokens"], event["usage"]["total_tokens"]),
                             (len(prompt), len(prompt) + event["usage"]["completion_tokens"]))
        self.assertEqual(events[-1]["usage"]["completion_tokens"], count)

    def test_what_bars_tokens_does_so_through_a_migration(self):
        plain = self.ask(COMPLETIONS, return_token_ids=True, **LONG)["choices"][0]
        ids = plain["token_ids"]
        word = plain["text"].split()[3]
        cases = {"bad_words": [word, plain["text"].split()[7] + " " + plain["text"].split()[8]],
                 "allowed_token_ids": sorted(set(ids))[::2]}
        for name, value in cases.items():
            with self.subTest(name):
                ask = {**LONG, name: value, "stream": True, "return_token_ids": True}
                whole = [t for e in self.events(**ask) for t in e["choices"][0]["token_ids"]]
                self.assertEqual(len(whole), 600)
                self.assertNotEqual(whole, ids)
                if name == "allowed_token_ids":
                    self.assertLessEqual(set(whole), set(value))
                else:
                    for bar in (self.tokenize(s + w) for w in value for s in ("", " ")):
                        self.assertFalse(any(whole[i:i + len(bar)] == bar for i in range(600)))
                # One of the two has the stream, and may have sent all of it before it dies.
                for attempt in range(40):
                    ids, num_migrations = self.killed(ask, attempt % 2)
                    self.assertEqual(ids, whole)
                    if num_migrations > 0:
                        break
                self.assertGreater(num_migrations, 0)

    def killed(self, ask, victim):
        """The ids of a stream while one of two workers is killed after its first event, and how
        often the gateway continued it."""
        workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB")
                   for _ in range(2)]
        gateway = fleet.start_gateway(workers)
        fleet.Client(gateway.address).wait_for_model(2)
        connection = http.client.HTTPConnection(gateway.http_address, timeout=120)
        try:
            connection.request("POST", COMPLETIONS, json.dumps(ask),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            lines = [response.readline()]
            workers[victim].signal(signal.SIGKILL)
            lines += response.readlines()
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read().decode()
        finally:
            connection.close()
            for program in (gateway, *workers):
                program.kill()
        ids = []
        for line in lines:
            if line.startswith(b"data: {"):
                ids += json.loads(line[6:])["choices"][0]["token_ids"]
        counts = re.findall(r"(?m)^continuo_gateway_migrations_total\{.*\} (\d+)$", metrics)
        return ids, sum(map(int, counts))


if __name__ == "__main__":
    unittest.main(verbosity=2)
