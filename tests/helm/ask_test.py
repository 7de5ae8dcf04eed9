# SPDX-License-Identifier: Apache-2.0
"""helm/continuo/files/ask.sh, what `helm test` runs, passes where every model answers with tokens, and
fails for each other answer."""
import http.server
import json
import os
import subprocess
import threading
import unittest

import chart

BODIES = [{"model": m, "prompt": "Hello", "max_tokens": 4} for m in ("a", "org/b")]


class Gateway:
    """Answers completions with what the test says, and remembers who asked what."""

    def __init__(self, key=None):
        self.asked, self.answers = [], {}
        gateway = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                given = self.headers.get("authorization")
                gateway.asked.append((self.path, body, given))
                usage = {"usage": {"completion_tokens": 4}}
                code, answer = gateway.answers.get(body["model"], (200, usage))
                if key is not None and given != f"Bearer {key}":
                    code, answer = 401, {"error": {"code": "invalid_api_key"}}
                text = json.dumps(answer, separators=(",", ":")).encode()
                self.send_response(code)
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


class AskTest(unittest.TestCase):
    def gateway(self, key=None):
        gateway = Gateway(key)
        self.addCleanup(gateway.server.server_close)
        self.addCleanup(gateway.server.shutdown)
        return gateway

    def run_script(self, gateway, **environment):
        bodies = "\n".join(["", *map(json.dumps, BODIES), ""])
        return subprocess.run(
            ["sh", "-c", (chart.CHART / "files/ask.sh").read_text()], text=True, capture_output=True,
            timeout=120, env={"PATH": os.environ["PATH"], "URL": gateway.url, "BODIES": bodies,
                              "TIMEOUT": "60", **environment})

    def test_passes_where_every_model_answers(self):
        gateway = self.gateway()
        done = self.run_script(gateway)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(gateway.asked, [("/v1/completions", b, None) for b in BODIES])
        self.assertEqual(done.stdout.count("answered:"), 2)

    def test_fails_where_one_of_them_does_not(self):
        for code, answer, told in (
                (503, {"error": {"code": "no_worker"}}, "no_worker"),
                (404, {"error": {"code": "model_not_found"}}, "model_not_found"),
                (200, {"usage": {"completion_tokens": 0}}, "no tokens"),
                (200, {}, "no tokens")):
            for model in ("a", "org/b"):
                with self.subTest(code=code, model=model, answer=answer):
                    gateway = self.gateway()
                    gateway.answers[model] = (code, answer)
                    done = self.run_script(gateway)
                    self.assertNotEqual(done.returncode, 0)
                    self.assertIn(told, done.stderr)

    def test_fails_where_nobody_listens(self):
        gateway = self.gateway()
        gateway.server.server_close()
        self.assertNotEqual(self.run_script(gateway).returncode, 0)

    def test_shows_its_key_and_not_as_an_argument(self):
        gateway = self.gateway(key="sk-of-a-client-0123")
        done = self.run_script(gateway, KEY_NEEDED="yes", API_KEY="sk-of-a-client-0123")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([given for *_, given in gateway.asked], ["Bearer sk-of-a-client-0123"] * 2)
        self.assertNotIn("sk-of-a-client", done.stdout)
        done = self.run_script(gateway, KEY_NEEDED="yes", API_KEY="sk-of-a-stranger-01")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("invalid_api_key", done.stderr)

    def test_without_a_key_strangers_have_to_be_refused(self):
        done = self.run_script(self.gateway(key="sk-of-a-client-0123"), KEY_NEEDED="yes")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("test.apiKeySecret names none", done.stdout)
        done = self.run_script(self.gateway(), KEY_NEEDED="yes")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the answer is 200, not 401", done.stderr)

    def test_kubernetes_leaves_the_script_as_it_is(self):
        self.assertNotIn("$" + "$", (chart.CHART / "files/ask.sh").read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
