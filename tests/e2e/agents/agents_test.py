#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents from npm edit a file, headless, against a real fleet whose model follows a script, while the worker
of an answer is killed. They do not notice: each asks once for each step and ends well."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "clients")]
import fleet  # noqa: E402
from kills import Link  # noqa: E402
from script import Messages, Responses, ScriptedModel  # noqa: E402

PROGRAMS = fleet.ROOT / "build/clients/agents/node_modules/.bin"
MODEL = "demo-long"  # the demo model with room for agents' prompts
TASK = "Change the greeting."
BEFORE, AFTER = "Hello, Mira.\n", "Good morning, Mira.\n"
END = "The greeting is changed."


def installed(program):
    return unittest.skipUnless((PROGRAMS / program).exists(), f"{program} comes with scripts/setup.sh --all")


class AgentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="continuo-agents-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.model = cls.folder / MODEL
        shutil.copytree(fleet.DEMO_MODEL, cls.model)
        config = json.loads((cls.model / "config.json").read_text())
        config["max_position_embeddings"] = 32768
        (cls.model / "config.json").write_text(json.dumps(config))

    def setUp(self):
        self.is_armed, self.victim = False, None
        self.workers = [fleet.start_worker(self.model, "--threads=1", "--kv_cache_memory=384MiB")
                        for _ in range(2)]
        self.links = [Link(worker.address, lambda *piece, i=i: self.cut(i, *piece))
                      for i, worker in enumerate(self.workers)]
        self.gateway = fleet.start_gateway([link.address for link in self.links])
        fleet.Client(self.gateway.address).wait_for_model(num_workers=2)
        self.home = self.folder / self._testMethodName
        self.work = self.home / "work"
        self.work.mkdir(parents=True)
        self.greeting = self.work / "greeting.txt"
        self.greeting.write_text(BEFORE)

    def tearDown(self):
        for program in (self.gateway, *self.workers):
            program.kill()
        for link in self.links:
            link.close()

    def cut(self, i, num_tokens, is_end):
        """Kills worker `i` in the middle of an answer, once where armed."""
        if not self.is_armed or num_tokens < 3 or is_end:
            return False
        self.is_armed, self.victim = False, i
        self.links[i].target = None
        self.workers[i].kill()
        return True

    def run_agent(self, form, steps, command, environment):
        """Runs an agent whose model takes these steps, the last of which edits the greeting and loses its worker."""
        def on_step(number):
            self.is_armed = number == len(steps) - 1
        model = ScriptedModel(self.gateway.http_address, form, steps, END, on_step)
        self.addCleanup(model.close)
        run = subprocess.run([str(part) for part in command(model.url)], cwd=self.work, capture_output=True,
                             text=True, stdin=subprocess.DEVNULL, timeout=240, env={
                                 "PATH": os.environ["PATH"], "HOME": str(self.home), "TMPDIR": str(self.home),
                                 **environment(model.url)})
        told = f"{model.failures}\n{model.num_asked}\n{run.stdout[-3000:]}\n{run.stderr[-6000:]}"
        self.assertEqual(run.returncode, 0, told)
        self.assertEqual(self.greeting.read_text(), AFTER, told)
        self.assertIn(END, run.stdout)
        self.assertEqual(model.failures, [])
        self.assertEqual(model.num_asked, [1] * (len(steps) + 1), "an agent asked again")
        self.assertIsNotNone(self.victim, "no worker was killed")
        migrated = sum(value for series, value in fleet.scrape(self.gateway.metrics_address).items()
                       if series.startswith("continuo_gateway_migrations_total{"))
        self.assertEqual(migrated, 1)

    @installed("codex")
    def test_codex(self):
        settings = self.home / ".codex"
        settings.mkdir()
        edit = f"printf '{AFTER[:-1]}\\n' > greeting.txt"
        steps = [("exec_command", {"cmd": "cat greeting.txt"}), ("exec_command", {"cmd": edit})]

        def command(url):
            (settings / "config.toml").write_text(f'''
model = "{MODEL}"
model_provider = "continuo"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.continuo]
name = "continuo"
base_url = "{url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
''')
            # Its sandbox wants a kernel that containers may not have; the folder is the test's own.
            return [PROGRAMS / "codex", "exec", "--skip-git-repo-check",
                    "--dangerously-bypass-approvals-and-sandbox", TASK]
        self.run_agent(Responses, steps, command, lambda url: {})

    @installed("claude")
    def test_claude_code(self):
        steps = [("Read", {"file_path": str(self.greeting)}),
                 ("Edit", {"file_path": str(self.greeting), "old_string": BEFORE[:-1], "new_string": AFTER[:-1]})]
        self.run_agent(
            Messages, steps,
            lambda url: [PROGRAMS / "claude", "-p", TASK, "--permission-mode", "acceptEdits"],
            lambda url: {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "none", "ANTHROPIC_MODEL": MODEL,
                         "ANTHROPIC_SMALL_FAST_MODEL": MODEL, "CLAUDE_CODE_MAX_RETRIES": "0",
                         "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1",
                         "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"})


if __name__ == "__main__":
    unittest.main()
