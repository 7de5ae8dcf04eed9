#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that people point at a server: aider, and the load generators guidellm and aiperf, as they
are, with the tokenizer of a local folder. Each text that they got is that of plain HTTP."""
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from base import *  # noqa: E402

REQUESTS, CONCURRENCY, PROMPT_TOKENS, OUTPUT_TOKENS = 16, 4, 64, 16


class AiderTest(ClientsTest):
    def aider(self, model, question, *more):
        source = self.folder / "lives.py"
        source.write_text('print("Mira lives in Oslo.")\n')
        return self.run_program(
            INSTALLED / "aider/bin/aider", "--model", "openai/" + model, "--openai-api-base",
            self.url + "/v1", "--no-git", "--no-check-update", "--no-show-model-warnings",
            "--no-show-release-notes", "--no-analytics", "--no-pretty", "--yes-always",
            "--edit-format", "ask", "--llm-history-file", self.folder / "history.txt", *more,
            "--message", question, source)

    def asked(self):
        """The conversation that aider's history tells, and the answer that it got."""
        history = (self.folder / "history.txt").read_text()
        asked, answer = history.split("LLM RESPONSE", 1)
        messages = []
        for part in asked.split("-------\n")[1:]:
            lines = [line.partition(" ")[::2] for line in part.splitlines()]
            messages.append({"role": lines[0][0].lower(),
                             "content": "\n".join(text for _, text in lines)})
        return messages, "\n".join(l.removeprefix("ASSISTANT ") for l in answer.splitlines()[1:])

    @installed("aider", "aider")
    def test_an_answer(self):
        for flag in ("--stream", "--no-stream"):
            with self.subTest(flag):
                (self.folder / "history.txt").unlink(missing_ok=True)
                told = self.aider(LONG_MODEL, "Where does Mira live?", flag)
                messages, answer = self.asked()
                self.assertEqual([m["role"] for m in messages][-1], "user")
                self.assertIn("lives in Oslo", json.dumps(messages))
                expected = self.content(messages, model=LONG_MODEL, max_tokens=None)
                self.assertEqual(answer, expected)
                self.assertIn(expected, " ".join(told.split()))  # it breaks lines
        self.wait_until_idle()

    @installed("aider", "aider")
    def test_a_context_that_is_too_long(self):
        told = self.aider(MODEL, LONG_QUESTION)
        self.assertIn("has hit a token limit!", told)
        self.wait_until_idle()


class LoadTest(ClientsTest):
    @installed("load", "guidellm")
    def test_guidellm(self):
        report = self.folder / "guidellm.json"
        self.run_program(
            INSTALLED / "load/bin/guidellm", "benchmark", "run", "--target", self.url, "--model",
            MODEL, "--processor", fleet.DEMO_MODEL, "--data",
            f"prompt_tokens={PROMPT_TOKENS},output_tokens={OUTPUT_TOKENS}", "--rate-type",
            "concurrent", "--rate", CONCURRENCY, "--max-requests", REQUESTS, "--backend-args",
            json.dumps({"api_key": KEY, "extra_body": {"temperature": 0}}), "--disable-progress",
            "--disable-console-outputs", "--output-path", report)
        requests = json.loads(report.read_text())["benchmarks"][0]["requests"]
        self.assertEqual([len(requests[k] or []) for k in ("successful", "errored", "incomplete")],
                         [REQUESTS, 0, 0])
        for request in requests["successful"]:
            answer = self.post("/v1/completions", model=MODEL, prompt=request["prompt"],
                               temperature=0, max_tokens=OUTPUT_TOKENS, ignore_eos=True)
            self.assertEqual(request["output"], answer["choices"][0]["text"])
            self.assertEqual([request["prompt_tokens"], request["output_tokens"]],
                             [answer["usage"]["prompt_tokens"], OUTPUT_TOKENS])
        self.wait_until_idle()

    @installed("load", "aiperf")
    def test_aiperf(self):
        reports = self.folder / "aiperf"
        self.run_program(
            INSTALLED / "load/bin/aiperf", "profile", "--model", MODEL, "--url", self.url,
            "--api-key", KEY, "--endpoint-type", "chat", "--streaming", "--tokenizer", fleet.DEMO_MODEL,
            "--concurrency", CONCURRENCY, "--request-count", REQUESTS, "--isl", PROMPT_TOKENS,
            "--osl", OUTPUT_TOKENS, "--extra-inputs", "ignore_eos:true", "--extra-inputs",
            "temperature:0", "--use-server-token-count", "--export-level", "raw", "--ui", "none",
            "--output-artifact-dir", reports)
        report = json.loads((reports / "profile_export_aiperf.json").read_text())
        self.assertEqual(report["request_count"]["avg"], REQUESTS)
        self.assertFalse(report.get("error_request_count"))
        self.assertEqual(report["total_osl"]["avg"], REQUESTS * OUTPUT_TOKENS)
        records = (reports / "profile_export_raw.jsonl").read_text().splitlines()
        self.assertEqual(len(records), REQUESTS)
        for record in map(json.loads, records):
            self.assertEqual(record["status"], 200)
            values = [packet["value"] for response in record["responses"]
                      for packet in response["packets"] if packet["name"] == "data"]
            self.assertEqual(values.pop(), "[DONE]")
            chunks = [json.loads(value) for value in values]
            text = "".join(c["choices"][0]["delta"].get("content") or ""
                           for c in chunks if c["choices"])
            self.assertEqual(text, self.content(record["payload"]["messages"], ignore_eos=True,
                                                max_tokens=OUTPUT_TOKENS))
            self.assertEqual(chunks[-1]["usage"]["completion_tokens"], OUTPUT_TOKENS)
        self.wait_until_idle()


if __name__ == "__main__":
    unittest.main()
