#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A device that breaks or hangs under a stream ends its worker's process, whose log says why, and the
gateway goes on with the stream on another worker.

The workers are the worker's own main over the shim of CUDA and NCCL, with faults to order
(worker_orders.cc).
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

WORKER, FAKE_NVML = os.environ["CONTINUO_SHIM_WORKER"], os.environ["CONTINUO_FAKE_NVML"]
TIMEOUT_S = 60
# Kernels run as fibers, so all sizes are small.
CONFIG = {"model_type": "qwen3", "vocab_size": 288, "hidden_size": 32, "intermediate_size": 48,
          "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 1e6,
          "tie_word_embeddings": True}
FLAGS = ("--kv_blocks=8", "--max_running=1", "--max_batch_tokens=16", "--max_prefill_chunk=16",
         "--speculation=off", "--threads=1")
# A step of one sequence is one graph. The second worker has less to do than its own fault waits for.
NUM_TOKENS, NUM_GRAPHS = 40, 28


class WorkerFaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="continuo-faults-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        config, cls.model = cls.folder / "config.json", cls.folder / "tiny"
        config.write_text(json.dumps(CONFIG))
        subprocess.run([fleet.BIN / "continuo-make-model", f"--config={config}", f"--out={cls.model}",
                        "--seed=7"], check=True, capture_output=True)
        cls.driver = cls.folder / "driver"
        cls.driver.mkdir()
        (cls.driver / "libnvidia-ml.so.1").symlink_to(FAKE_NVML)

    def start(self, name, *flags, order=None):
        orders = self.folder / f"{self.id()}-{name}"
        os.mkfifo(orders)
        environment = {"CONTINUO_SHIM_ORDERS": str(orders), "LD_LIBRARY_PATH": str(self.driver)}
        if order:
            environment["CONTINUO_SHIM_ORDER"] = order
        worker = fleet.Program(WORKER, f"--model={self.model}", f"--worker_name={name}",
                               "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0", *FLAGS, *flags,
                               env=environment)
        self.addCleanup(worker.kill)
        worker.name, worker.orders = name, orders
        return worker

    def last_words(self, worker):
        """The last line of the process's log, which says why it ended."""
        self.assertEqual(worker.process.wait(TIMEOUT_S), 1)
        worker._reader.join(TIMEOUT_S)
        record = json.loads(worker.lines[-1])
        self.assertEqual((record["severity"], record["message"]), ("ERROR", "the worker ends"))
        return record["reason"]

    def lose_a_worker(self, order, *flags):
        """The undisturbed answer, the one whose worker was lost, and that worker's last words."""
        workers = [self.start(name, *flags) for name in ("a", "b")]
        for worker in workers:
            worker.wait_until_listening()
        gateway = fleet.start_gateway(workers)
        self.addCleanup(gateway.kill)
        client = fleet.Client(gateway.address)
        self.addCleanup(client.channel.close)
        client.wait_for_model(num_workers=2)
        request = pb.GenerateRequest(text="one two three")
        request.sampling.temperature = 1
        request.sampling.seed = 5
        request.stopping.max_tokens = NUM_TOKENS
        request.stopping.ignore_eos = True
        request.output.logprobs = 2
        whole = client.generate(request)
        for worker in workers:
            with open(worker.orders, "w") as orders:
                orders.write(order + "\n")
            worker.wait_for_log("order taken")
        joined = client.generate(request)
        lost, other = sorted(workers, key=lambda w: w.name != joined.accepted[0].worker)
        reason = self.last_words(lost)
        self.assertIsNone(other.process.poll())
        for answer in (whole, joined):
            self.assertEqual(len(answer.ids[0]), NUM_TOKENS)
            self.assertEqual(answer.finish[0], pb.FINISH_REASON_LENGTH)
        self.assertEqual(joined.summary.migrations, 1)
        self.assertEqual(other.terminate(), 0)
        return whole, joined, reason

    def check_exact(self, whole, joined):
        self.assertFalse(joined.summary.inexact)
        self.assertEqual(joined.comparable(), whole.comparable())

    def test_a_device_that_is_lost(self):
        whole, joined, reason = self.lose_a_worker(
            f"break 0 cudaGraphLaunch {NUM_GRAPHS} 79", "--device=cuda:0", "--deterministic")
        self.check_exact(whole, joined)
        self.assertIn("cuda:0: cudaGraphLaunch: ", reason)
        self.assertTrue(reason.endswith("; Xid 79 on cuda:0: GPU has fallen off the bus"), reason)

    def test_a_device_that_hangs(self):
        whole, joined, reason = self.lose_a_worker(
            f"hang 0 cudaGraphLaunch {NUM_GRAPHS} 119", "--device=cuda:0", "--deterministic")
        self.check_exact(whole, joined)
        self.assertIn("a step hangs on cuda:0; Xid 119 on cuda:0: GSP RPC timeout", reason)

    def test_what_is_not_deterministic_goes_on_inexactly(self):
        _, joined, reason = self.lose_a_worker(
            f"break 0 cudaEventSynchronize {NUM_GRAPHS} 48", "--device=cuda:0")
        self.assertTrue(joined.summary.inexact)
        self.assertIn("cuda:0: cudaEventSynchronize: ", reason)
        self.assertIn("; Xid 48 on cuda:0: ", reason)

    def test_one_of_two_devices_that_is_lost(self):
        whole, joined, reason = self.lose_a_worker(
            f"break 1 cudaGraphLaunch {NUM_GRAPHS} 79", "--device=cuda:0,1", "--deterministic")
        self.check_exact(whole, joined)
        self.assertIn("cuda:1: ", reason)
        self.assertTrue(reason.endswith("; Xid 79 on cuda:1: GPU has fallen off the bus"), reason)

    def test_a_collective_that_hangs(self):
        # A step has two for the layer and one for the logits.
        whole, joined, reason = self.lose_a_worker(
            f"hang-collective 0 {3 * NUM_GRAPHS}", "--device=cuda:0,1", "--deterministic")
        self.check_exact(whole, joined)
        self.assertIn("a step hangs on cuda:0,1", reason)

    def test_a_device_that_is_lost_while_loading(self):
        worker = self.start("a", "--device=cuda:0", order="break 0 cudaMemcpyAsync 3 79")
        reason = self.last_words(worker)
        self.assertIn("cuda:0: ", reason)
        self.assertTrue(reason.endswith("; Xid 79 on cuda:0: GPU has fallen off the bus"), reason)


if __name__ == "__main__":
    unittest.main(verbosity=2)
