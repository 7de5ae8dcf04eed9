#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs an example client, built as its README says, against two real gateways and two workers. The death
of a worker is not visible; the death of a gateway and a connection that falls silent cause one reconnect
each; Ctrl-C and the deadline end the work everywhere.

    tests/cli/examples_test.py python|go|typescript|java
"""
import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import fleet  # noqa: E402
from proxies import SilentProxy  # noqa: E402
from fleet import pb  # noqa: E402

EXAMPLES = fleet.ROOT / "services/cli/examples"
# The commands that build each example in its folder, and that run it.
LANGUAGES = {
    "python": ([], [sys.executable, EXAMPLES / "python/generate.py"]),
    "go": ([["go", "generate"], ["go", "build", "-o", "bin/generate"]],
           [EXAMPLES / "go/bin/generate"]),
    "typescript": ([["npm", "ci"], ["npm", "run", "build"]],
                   ["node", EXAMPLES / "typescript/dist/generate.js"]),
    "java": ([["mvn", "--quiet", "--batch-mode", "package"]],
             ["java", "-jar", EXAMPLES / "java/target/generate.jar"]),
}
language = sys.argv.pop(1)
PROMPT = "Mira lives in Oslo and plays the violin."
TOKENS, SEED = 900, 11
TIMEOUT_S = 120


def build():
    commands, _ = LANGUAGES[language]
    for command in commands:
        try:
            done = subprocess.run(command, cwd=EXAMPLES / language, capture_output=True, text=True)
        except FileNotFoundError:
            sys.exit(f"{command[0]} is missing; scripts/setup.sh --clients installs it")
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


class ExampleTest(unittest.TestCase):
    def setUp(self):
        # The scalar kernels make an answer take a second, so that a fault hits it in the middle.
        self.workers = [fleet.start_worker(fleet.DEMO_MODEL, "--threads=1", "--isa=scalar",
                                           f"--worker_name=worker-{i}") for i in range(2)]
        self.gateways = [fleet.start_gateway(self.workers) for _ in range(2)]
        for gateway in self.gateways:
            fleet.Client(gateway.address).wait_for_model(len(self.workers))

    def tearDown(self):
        for program in self.gateways + self.workers:
            program.signal(signal.SIGCONT)
            program.kill()

    def undisturbed(self):
        request = pb.GenerateRequest(text=PROMPT)
        request.sampling.temperature = 1
        request.sampling.seed = SEED
        request.stopping.max_tokens = TOKENS
        request.stopping.ignore_eos = True
        return fleet.Client(self.workers[0].address).generate(request).text[0]

    def start(self, *flags, first=None):
        """Starts the client on a long answer and waits for its beginning. `first` replaces the address of
        the first gateway."""
        servers = ",".join([first or self.gateways[0].address, self.gateways[1].address])
        _, command = LANGUAGES[language]
        process = subprocess.Popen(
            [*command, f"--server={servers}", f"--max_tokens={TOKENS}", f"--seed={SEED}",
             "--temperature=1", "--ignore_eos", *flags, PROMPT],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        self.begin = os.read(process.stdout.fileno(), 1)
        self.assertTrue(self.begin, process.stderr)
        return process

    def finish(self, process):
        """Returns the exit code, the output and the errors."""
        rest, errors = process.communicate(timeout=TIMEOUT_S)
        return process.returncode, (self.begin + rest).decode(), errors.decode()

    def wait_until_idle(self):
        """Fails at the stream's deadline."""
        for worker in self.workers:
            stub = fleet.Client(worker.address).worker
            for load in stub.WatchLoad(fleet.worker_pb.WatchLoadRequest(), timeout=60):
                if load.running_requests == 0 and load.waiting_requests == 0:
                    break

    def test_worker_killed_is_not_seen(self):
        undisturbed = self.undisturbed()
        process = self.start()
        busy = max(self.workers, key=lambda worker: sum(
            value for name, value in fleet.scrape(worker.metrics_address).items()
            if name.startswith("continuo_running_requests")))
        busy.process.kill()
        self.assertEqual(self.finish(process), (0, undisturbed + "\n", ""))
        migrations = sum(value for name, value in fleet.scrape(self.gateways[0].metrics_address).items()
                    if name.startswith("continuo_gateway_migrations_total"))
        self.assertEqual(migrations, 1)

    def test_gateway_killed_is_one_reconnect(self):
        undisturbed = self.undisturbed()
        process = self.start()
        self.gateways[0].process.kill()
        code, text, errors = self.finish(process)
        self.assertEqual((code, text), (0, undisturbed + "\n"), errors)
        self.assertRegex(errors, r"\A\[lost after [1-9]\d* tokens, \w+; going on\]\n\Z")

    def test_connection_that_fell_silent_is_one_reconnect(self):
        """The proxy first answers the pings that gRPC by default allows a client that sends nothing else."""
        undisturbed = self.undisturbed()
        proxy = SilentProxy(self.gateways[0].address, num_data=3, num_pings=2)
        self.addCleanup(proxy.close)
        code, text, errors = self.finish(self.start(first=proxy.address))
        self.assertEqual((code, text), (0, undisturbed + "\n"), errors)
        self.assertTrue(proxy.is_silent)
        self.assertRegex(errors, r"\A\[lost after [1-9]\d* tokens, \w+; going on\]\n\Z")

    def test_full_gateway_takes_what_goes_on_a_little_later(self):
        undisturbed = self.undisturbed()
        self.gateways[1].kill()
        self.gateways[1] = fleet.start_gateway(self.workers, "--max_open_requests=1")
        models = fleet.Client(self.workers[0].address).inference.ListModels(pb.ListModelsRequest())
        request = pb.GenerateRequest(text=PROMPT)
        request.stopping.max_tokens = models.models[0].max_context_tokens - 64
        request.stopping.ignore_eos = True
        holder = fleet.Client(self.gateways[1].address)
        holder.wait_for_model()
        process = self.start()
        held = holder.inference.Generate(request)
        next(held)
        self.gateways[0].process.kill()
        while line := process.stderr.readline():
            if b"exhausted" in line.lower():
                break
        self.assertTrue(line, "the gateway was not full")
        held.cancel()
        code, text, errors = self.finish(process)
        self.assertEqual((code, text), (0, undisturbed + "\n"), errors)

    def test_interrupt_cancels(self):
        process = self.start()
        process.send_signal(signal.SIGINT)
        code, _, errors = self.finish(process)
        self.assertEqual((code, errors), (130, ""))
        self.wait_until_idle()

    def test_deadline_is_kept_where_nothing_comes(self):
        process = self.start("--timeout=5")
        for worker in self.workers:
            worker.signal(signal.SIGSTOP)
        code, _, errors = self.finish(process)
        self.assertEqual(code, 1)
        self.assertIn("DEADLINE_EXCEEDED", errors)
        for worker in self.workers:
            worker.signal(signal.SIGCONT)
        self.wait_until_idle()

    def test_error_is_one_line(self):
        _, command = LANGUAGES[language]
        done = subprocess.run([*command, f"--server={self.gateways[0].address}", "--model=nobody",
                               PROMPT], timeout=TIMEOUT_S, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (1, ""))
        self.assertRegex(done.stderr, r"\A.*NOT_FOUND: .*nobody.*\n\Z")


if __name__ == "__main__":
    build()
    unittest.main(verbosity=2)
