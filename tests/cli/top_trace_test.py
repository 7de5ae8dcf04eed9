#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs `continuo top` and `continuo trace` against a real worker: rows of the batch, a worker that dies
and comes back, Ctrl-C, and a terminal that is restored."""
import json
import os
import pathlib
import pty
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

TOP = [fleet.BIN / "continuo", "top", "--interval=20ms"]
ROW = re.compile(r"^ +(\d+)  (\S+) +(\d+)/(\d+) +(\d+)  (.*?)  ")


def request(request_id, max_tokens=900, text="Mira lives in Oslo."):
    result = pb.GenerateRequest(request_id=request_id, text=text)
    result.stopping.max_tokens = max_tokens
    result.stopping.ignore_eos = True
    return result


class Top:
    """A running `continuo top`, line by line."""

    def __init__(self, address, *flags):
        self.process = subprocess.Popen([*TOP, f"--worker={address}", *flags], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = []

    def read_until(self, wanted):
        """Returns the next line that contains the pattern; fails at the end of the output."""
        for line in self.process.stdout:
            self.lines.append(line)
            if re.search(wanted, line):
                return line
        raise AssertionError(f"no {wanted}:\n" + "".join(self.lines[-30:]))

    def interrupt(self):
        """Returns the exit code and stderr."""
        self.process.send_signal(signal.SIGINT)
        rest, errors = self.process.communicate(timeout=60)
        self.lines += rest.splitlines(keepends=True)
        return self.process.returncode, errors

    def rows(self):
        """Returns (row, name, state) of all lines that are rows."""
        found = [ROW.match(line) for line in self.lines]
        return [(int(m[1]), m[2], m[6].strip()) for m in found if m]


class SeeingTest(unittest.TestCase):
    def setUp(self):
        # This ends a test that waits in vain.
        watchdog = threading.Timer(200, lambda: os._exit(1))
        watchdog.daemon = True
        watchdog.start()
        self.addCleanup(watchdog.cancel)

    def worker(self, *flags, **keywords):
        worker = fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", *flags, **keywords)
        self.addCleanup(worker.kill)
        return worker

    def top(self, address, *flags):
        top = Top(address, *flags)
        self.addCleanup(top.process.stderr.close)
        self.addCleanup(top.process.stdout.close)
        self.addCleanup(top.process.wait)
        self.addCleanup(top.process.kill)
        return top

    def read_while_generating(self, top, client, name):
        """Returns the first line that shows a request. Requests follow each other until one is seen."""
        seen = threading.Event()

        def generate():
            while not seen.is_set():
                list(client.inference.Generate(request(name), timeout=60, wait_for_ready=True))
        generating = threading.Thread(target=generate)
        generating.start()
        try:
            return top.read_until(f" {name} ")
        finally:
            seen.set()
            generating.join()

    def test_the_next_request_takes_the_free_row(self):
        worker = self.worker("--max_running=2")
        client = fleet.Client(worker.address)
        top = self.top(worker.address)
        self.read_while_generating(top, client, "first")
        calls = [client.inference.Generate(request(f"request-{i}"), timeout=120) for i in range(6)]
        for call in calls:
            list(call)
        # The row of the last request stays.
        list(client.inference.Generate(request("last"), timeout=60))
        top.read_until(" last .* end: length")
        code, errors = top.interrupt()
        self.assertEqual((code, errors), (130, ""))
        rows = top.rows()
        self.assertEqual({row for row, _, _ in rows}, {1, 2})
        self.assertGreaterEqual(len({name for _, name, _ in rows}), 4)
        self.assertIn("generating", {state for _, _, state in rows})
        self.assertNotIn("\x1b", "".join(top.lines))

    def test_a_worker_that_dies_and_comes_back(self):
        port = fleet.free_port()
        worker = self.worker(port=port)
        top = self.top(worker.address)
        self.read_while_generating(top, fleet.Client(worker.address), "before")
        worker.kill()
        top.read_until("UNREACHABLE  UNAVAILABLE")
        client = fleet.Client(self.worker(port=port).address)
        self.assertIn(" 1  after ", self.read_while_generating(top, client, "after"))
        self.assertEqual(top.interrupt(), (130, ""))

    def test_a_cancelled_request_is_gone(self):
        worker = self.worker("--isa=scalar")  # It is slow enough to be seen at work.
        client = fleet.Client(worker.address)
        top = self.top(worker.address)
        self.read_while_generating(top, client, "first")
        call = client.inference.Generate(request("mine"), timeout=60)
        next(call)
        top.read_until(" mine .*(reading|generating)")
        call.cancel()
        top.read_until(" mine .*(gone|end: length)")
        top.interrupt()

    def test_a_terminal_is_as_before(self):
        worker = self.worker()
        leader, follower = pty.openpty()
        process = subprocess.Popen([*TOP, f"--worker={worker.address}"], stdout=follower,
                                   stdin=follower, stderr=subprocess.PIPE)
        os.close(follower)
        output = b""
        while b"SERVING" not in output:
            output += os.read(leader, 65536)
        process.send_signal(signal.SIGINT)
        while not output.endswith(b"\x1b[?25h\x1b[?1049l"):
            output += os.read(leader, 65536)
        _, errors = process.communicate(timeout=60)
        os.close(leader)
        self.assertEqual((process.returncode, errors), (130, b""))
        self.assertTrue(output.startswith(b"\x1b[?1049h\x1b[?25l\x1b[H"))

    def test_a_reader_who_leaves_ends_it(self):
        worker = self.worker()
        top = self.top(worker.address)
        top.read_until("SERVING")
        top.process.stdout.close()
        self.assertNotEqual(top.process.wait(60), 0)

    def test_a_gateway_is_no_worker(self):
        gateway = fleet.start_gateway([self.worker()])
        self.addCleanup(gateway.kill)
        result = subprocess.run([*TOP, f"--worker={gateway.address}"], capture_output=True,
                                text=True, timeout=60)
        self.assertEqual(result.returncode, 1)
        self.assertIn("UNIMPLEMENTED", result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1)

    def test_a_trace_has_steps_and_requests(self):
        worker = self.worker("--max_running=2", "--max_prefill_chunk=8")
        client = fleet.Client(worker.address)
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "trace.json"
            process = subprocess.Popen([fleet.BIN / "continuo", "trace", f"--out={out}",
                                        f"--worker={worker.address}", "--duration=1h"],
                                       stderr=subprocess.PIPE, text=True)
            while not out.exists():  # It exists once the worker has answered.
                self.assertIsNone(process.poll())
                threading.Event().wait(0.01)  # Polls another process.
            for i in range(3):
                long = request(f"request-{i}", 50, f"{i} " + "Mira lives in Oslo. " * 9)
                list(client.inference.Generate(long, timeout=60))
            while "request-2" not in out.read_text():
                threading.Event().wait(0.01)  # Polls another process.
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 130, errors)
            trace = json.loads(out.read_text())
        slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        ends = {}
        for event in slices:
            begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            thread = event["pid"], event["tid"]
            self.assertGreaterEqual(begin, ends.get(thread, 0))
            ends[thread] = end
        names = [e["name"] for e in slices]
        self.assertGreater(names.count("request-0 prompt"), 1)  # Its chunks have 8 tokens.
        answer = next(e["args"] for e in slices if e["name"] == "request-0")
        self.assertEqual((answer["generated"], answer["end"]), (50, "length"))
        steps = [e["args"]["number"] for e in slices if e["name"] == "step"]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(trace["otherData"]["ended"], "interrupt")


if __name__ == "__main__":
    unittest.main()
