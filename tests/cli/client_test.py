#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the command-line client and the Python example against a real gateway and worker: the text
survives broken connections, Ctrl-C cancels, and errors are one line."""
import json
import os
import pathlib
import pty
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from proxies import BreakingProxy, SilentProxy  # noqa: E402

EXAMPLE = fleet.ROOT / "services/cli/examples/python/generate.py"
PROMPT = "Mira lives in Oslo and plays the violin."
LONG = ["--max_tokens=400", "--temperature=1", "--seed=11", "--ignore_eos"]
# The numbers of bytes from the server after which connections break: after some tokens, inside the first
# headers, and so on. Their sum is less than the answer has, even where all tokens come in one response.
LIMITS = [1000, 40, 700, 700]


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.worker = fleet.start_worker()
        cls.gateway = fleet.start_gateway([cls.worker])
        fleet.Client(cls.gateway.address).wait_for_model()

    def cli(self, command, *arguments, address=None, **keywords):
        server = [f"--server={address or self.gateway.address}"] if command != "fleet" else []
        return subprocess.run([fleet.BIN / "continuo", command, *server, *arguments], timeout=120,
                              capture_output=True, text=True, **keywords)

    def example(self, *arguments, address=None):
        return subprocess.run([sys.executable, EXAMPLE,
                               f"--server={address or self.gateway.address}", *arguments],
                              timeout=120, capture_output=True, text=True)

    def assert_survives(self, run, lost_line):
        undisturbed = run(*LONG, PROMPT)
        self.assertEqual(undisturbed.returncode, 0, undisturbed.stderr)
        self.assertGreater(len(undisturbed.stdout), 200)
        proxy = BreakingProxy(self.gateway.address, LIMITS)
        broken = run(*LONG, PROMPT, address=proxy.address)
        proxy.close()
        self.assertEqual(broken.returncode, 0, broken.stderr)
        self.assertEqual(broken.stdout, undisturbed.stdout)
        self.assertGreaterEqual(proxy.num_broken, 3)
        self.assertGreaterEqual(broken.stderr.count(lost_line), 3, broken.stderr)

    def test_example_goes_on_after_broken_connections(self):
        self.assert_survives(self.example, "; going on]")

    def test_cli_goes_on_after_broken_connections(self):
        def run(*arguments, address=None):
            return self.cli("generate", "--verbose", *arguments, address=address)
        self.assert_survives(run, "; going on]")

    def test_cli_goes_on_after_a_connection_fell_silent(self):
        """The proxy first answers the two pings that gRPC by default allows a client that sends nothing else.
        The client pings every 10 s."""
        undisturbed = self.cli("generate", *LONG, PROMPT)
        proxy = SilentProxy(self.gateway.address, num_data=3, num_pings=2)
        silenced = self.cli("generate", "--verbose", *LONG, PROMPT, address=proxy.address)
        proxy.close()
        self.assertEqual((silenced.returncode, silenced.stdout), (0, undisturbed.stdout), silenced.stderr)
        self.assertTrue(proxy.is_silent)
        self.assertEqual(silenced.stderr.count("; going on]"), 1, silenced.stderr)

    def test_both_show_the_same_text(self):
        flags = ["--max_tokens=40", "--temperature=0", "--ignore_eos", PROMPT]
        self.assertEqual(self.cli("generate", *flags).stdout, self.example(*flags).stdout)

    def interrupt(self, command):
        """Starts a long answer and interrupts it after its first character."""
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        self.assertTrue(process.stdout.read(1))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertEqual(errors, "")
        self.wait_until_idle()

    def wait_until_idle(self):
        """Waits until the worker has freed a cancelled request; fails at the stream's deadline."""
        stub = fleet.Client(self.worker.address).worker
        for load in stub.WatchLoad(fleet.worker_pb.WatchLoadRequest(), timeout=60):
            if load.running_requests == 0 and load.waiting_requests == 0:
                return

    def test_interrupt_cancels(self):
        server = f"--server={self.gateway.address}"
        flags = [server, "--max_tokens=100000", "--ignore_eos", PROMPT]
        self.interrupt([str(fleet.BIN / "continuo"), "generate", *flags])
        self.interrupt([sys.executable, str(EXAMPLE), *flags])

    def test_deadline_is_told(self):
        flags = ["--max_tokens=100000", "--ignore_eos", PROMPT]
        for result in (self.cli("generate", "--timeout=10ms", *flags),
                       self.example("--timeout=0.01", *flags)):
            self.assertEqual(result.returncode, 1)
            self.assertIn("DEADLINE_EXCEEDED", result.stderr)

    def test_errors_are_one_line(self):
        for result in (self.cli("generate", "--model=nobody", PROMPT),
                       self.example("--model=nobody", PROMPT)):
            self.assertEqual(result.returncode, 1)
            self.assertIn("NOT_FOUND", result.stderr)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_chat_takes_piped_turns(self):
        result = self.cli("chat", "--temperature=0", "--max_tokens=30",
                          input="Mira lives in Oslo. Where does Mira live?\n/reset\nAnd Tom?\n")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreaterEqual(len(result.stdout.splitlines()), 2)

    def chat_with_tools(self, *flags):
        """A chat in the repository's root, where the example's command is."""
        return self.cli("chat", "--tools=services/cli/examples/tools/tools.json", "--temperature=0", *flags,
                        cwd=fleet.ROOT, input="Where is Mira?\nWhere is Otto?\n")

    def test_chat_runs_the_tool_that_the_model_calls(self):
        result = self.chat_with_tools("--allow_tools=find_person")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout, "Mira is in Lisbon.\nI could not find Otto.\n")
        self.assertEqual(result.stderr, '[find_person {"name": "Mira"}]\n[find_person → Lisbon]\n'
                                        '[find_person {"name": "Otto"}]\n'
                                        "[find_person said: nobody knows where Otto is]\n"
                                        "[find_person → error: exit status 1]\n")

    def test_chat_asks_on_a_terminal(self):
        ours, its = pty.openpty()
        chat = subprocess.Popen([fleet.BIN / "continuo", "chat", f"--server={self.gateway.address}",
                                 "--tools=services/cli/examples/tools/tools.json", "--temperature=0"],
                                stdin=its, stdout=its, stderr=its, cwd=fleet.ROOT)
        os.close(its)
        shown = b""

        def answer(words, reply):
            """Reads until the terminal shows the words, and types a line."""
            nonlocal shown
            while words not in shown:
                shown += os.read(ours, 4096)
            shown = shown.split(words, 1)[1]
            os.write(ours, reply + b"\n")
        command = b"Run python3 services/cli/examples/tools/find_person.py? y(es), n(o), a(lways): "
        answer(b"> ", b"Where is Mira?")
        answer(command, b"n")
        answer(b"I could not find Mira.", b"Where is Mira now?")
        answer(command, b"y")
        answer(b"Mira is in Lisbon.", b"/exit")
        self.assertEqual(chat.wait(60), 0)
        os.close(ours)

    def test_chat_runs_nothing_that_nobody_allowed(self):
        result = self.chat_with_tools()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("[find_person → error: not allowed]", result.stderr)
        self.assertEqual(result.stdout, "I could not find Mira.\nI could not find Otto.\n")

    def test_fleet_shows_the_worker(self):
        workers = f"--workers={self.worker.address}"
        table = self.cli("fleet", workers)
        self.assertEqual(table.returncode, 0, table.stdout)
        self.assertIn("SERVING", table.stdout)
        report = json.loads(self.cli("fleet", workers, "--json").stdout)
        self.assertEqual(report["workers"][0]["state"], "SERVING")
        self.assertGreater(report["workers"][0]["total_kv_blocks"], 0)

    def test_bench_counts_what_it_asked_for(self):
        result = self.cli("bench", "--requests=12", "--concurrency=4", "--prompt_tokens=8",
                          "--output_tokens=10", "--shared_prefix_tokens=64", "--json=-")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        report = json.loads(result.stdout)
        self.assertEqual(report["requests"]["ok"], 12)
        self.assertEqual(report["tokens"]["output"], 120)
        self.assertEqual(report["tokens"]["prompt"], 12 * 72)
        self.assertGreater(report["tokens"]["cached_prompt"], 0)


if __name__ == "__main__":
    unittest.main()
