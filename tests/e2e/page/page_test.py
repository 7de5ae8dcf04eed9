#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gateway's page in Chromium, against real gateways and workers. Screenshots are left in `page` beside the programs'
folder, which CI keeps."""
import ast
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
MODULES = fleet.ROOT / "build/npm"
SCREENSHOTS = fleet.BIN.parent / "page"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MODEL = "demo-model"
QUESTION = "Mira lives in Oslo and plays the violin. Where does Mira live?"
PROMPT = "Mira lives"
KEY = "0123456789abcdef0123"
MAX_RUNNING = 4
MAX_TOKENS = 20
TOOL = {"type": "function", "function": {
    "name": "find_person", "description": "Tells where somebody is.",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}
TOOL_QUESTION, TOOL_RESULT = "Where is Mira?", "Lisbon"

BROWSER = unittest.skipUnless(CHROMIUM and (MODULES / "node_modules/playwright-core").is_dir(),
                              "Chromium and playwright-core come with scripts/setup.sh --browser")


def run_tests(case, script, **environment):
    """stdout of a file of tests for Node.js."""
    run = subprocess.run(["node", "--test-reporter=spec", HERE / script], capture_output=True, text=True, timeout=540,
                         env={**os.environ, **environment})
    case.assertEqual(run.returncode, 0, run.stdout[-8000:] + run.stderr[-4000:])
    case.assertRegex(run.stdout, r"\bpass [1-9]")
    case.assertRegex(run.stdout, r"\bfail 0\b")
    return run.stdout


class PageTest(unittest.TestCase):
    """A gateway and a worker with few rows."""

    KEYED = False

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-page-"))
        cls.worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--kv_cache_memory=64MiB",
                                        f"--max_running={MAX_RUNNING}")
        flags = []
        if cls.KEYED:
            keys = cls.folder / "keys"
            keys.write_text(f"somebody {KEY}\n")
            flags.append(f"--api_keys_file={keys}")
        cls.gateway = fleet.start_gateway([cls.worker], *flags)
        cls.url = f"http://{cls.gateway.http_address}/"
        fleet.wait_until(lambda: cls.post("tokenize", prompt="a") is not None, "the worker")

    @classmethod
    def tearDownClass(cls):
        cls.gateway.kill()
        cls.worker.kill()
        shutil.rmtree(cls.folder)

    @classmethod
    def post(cls, path, **members):
        """The answer to plain HTTP; None while there is no worker."""
        headers = {"Content-Type": "application/json", "Authorization": "Bearer " + KEY}
        request = urllib.request.Request(cls.url + path, json.dumps(members).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                return json.loads(response.read())
        except urllib.error.HTTPError as error:
            if error.code == 503 or error.code == 404:
                return None
            raise

    def chat(self, messages, **members):
        members = {"model": MODEL, "temperature": 0, "max_tokens": MAX_TOKENS, **members}
        return self.post("v1/chat/completions", messages=messages, **members)["choices"][0]["message"]

    def facts(self):
        """Returns what the page has to show, by plain HTTP."""
        user = {"role": "user", "content": TOOL_QUESTION}
        called = self.chat([user], tools=[TOOL], max_tokens=100)
        result = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": TOOL_RESULT}
        return {
            "model": MODEL, "question": QUESTION, "prompt": PROMPT, "key": KEY, "max_running": MAX_RUNNING,
            "max_tokens": MAX_TOKENS, "tool": TOOL, "tool_question": TOOL_QUESTION, "tool_result": TOOL_RESULT,
            "answer": self.chat([{"role": "user", "content": QUESTION}])["content"].strip(),
            "completion": self.post("v1/completions", model=MODEL, prompt=PROMPT, temperature=0,
                                    max_tokens=MAX_TOKENS)["choices"][0]["text"],
            "tool_answer": self.chat([user, called, result], tools=[TOOL], max_tokens=100)["content"].strip(),
        }

    def run_tests(self, script):
        return run_tests(self, script, PAGE_URL=self.url, FACTS=json.dumps(self.facts()), MODULES=str(MODULES),
                         CHROMIUM=CHROMIUM, HOME=str(self.folder), SCREENSHOTS=str(SCREENSHOTS))

    def wait_until_idle(self):
        """Nobody computes, and no stream is open: what the page has left was ended."""
        fleet.wait_until(lambda: fleet.scrape(self.gateway.metrics_address)["continuo_gateway_open_streams"] == 0
                         and fleet.scrape(self.worker.metrics_address)[
                             f'continuo_running_requests{{model="{MODEL}"}}'] == 0, "idle")


class TalkTest(PageTest):
    @BROWSER
    def test_talk(self):
        told = self.run_tests("talk.mjs")
        self.wait_until_idle()
        curl, python = json.loads(re.search(r"SNIPPETS (.*)", told).group(1))
        messages = [{"role": "system", "content": 'Don\'t "quote" $HOME'}, {"role": "user", "content": QUESTION}]
        expected = self.chat(messages, top_k=5)["content"]
        # What the page says to do does what the page does.
        events = subprocess.run(["bash", "-c", curl], check=True, capture_output=True, text=True, timeout=60).stdout
        pieces = [json.loads(line[6:])["choices"][0]["delta"].get("content", "")
                  for line in events.splitlines() if line.startswith("data: {")]
        self.assertEqual("".join(pieces), expected)
        ast.parse(python)
        printed = subprocess.run([sys.executable, "-c", python], check=True, capture_output=True, text=True,
                                 timeout=60).stdout
        self.assertEqual(printed, expected + "\n")


class BatchTest(PageTest):
    KEYED = True

    @BROWSER
    def test_batch(self):
        self.run_tests("batch.mjs")
        self.wait_until_idle()


class LooksTest(PageTest):
    @BROWSER
    def test_looks(self):
        shutil.rmtree(SCREENSHOTS, ignore_errors=True)
        self.run_tests("looks.mjs")
        self.wait_until_idle()
        self.assertEqual(len(list(SCREENSHOTS.glob("*.png"))), 26)


class UnitTest(unittest.TestCase):
    @unittest.skipUnless(shutil.which("node"), "Node.js comes with scripts/setup.sh --browser")
    def test_units(self):
        run_tests(self, "units.mjs")


if __name__ == "__main__":
    unittest.main()
