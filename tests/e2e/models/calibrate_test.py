#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""continuo-worker --calibrate: its file is what `continuo simulate --cost` reads."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402


class CalibrateTest(unittest.TestCase):
    def test_the_cost_of_the_demo_model_is_simulated(self):
        done = subprocess.run([fleet.BIN / "continuo-worker", "--calibrate", f"--model={fleet.DEMO_MODEL}",
                               "--kv_cache_memory=64MiB", "--max_running=24", "--threads=1"],
                              capture_output=True, text=True, timeout=280)
        self.assertEqual(done.returncode, 0, done.stderr)
        cost = json.loads(done.stdout)
        self.assertEqual((cost["max_running"], cost["block_size"], cost["asynchronous"]), (24, 16, False))
        self.assertGreater(cost["kv_blocks"], 100)
        self.assertGreater(cost["step_seconds"]["per_token"], 0)
        self.assertLess(cost["step_seconds"]["per_token"], 1)
        self.assertIn("demo-model", cost["name"])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "cost.json"
            path.write_text(done.stdout)
            simulated = subprocess.run([fleet.BIN / "continuo", "simulate", f"--cost={path}", "--rate=2",
                                        "--requests=40", "--json=-"], capture_output=True, text=True, timeout=60)
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        report = json.loads(simulated.stdout)
        self.assertEqual((report["cost"], report["requests"]["ok"]), (cost["name"], 40))

    def test_what_fails_is_logged_and_prints_nothing(self):
        done = subprocess.run([fleet.BIN / "continuo-worker", "--calibrate", "--model=/no/such/model"],
                              capture_output=True, text=True, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn("/no/such/model", done.stderr)


if __name__ == "__main__":
    unittest.main()
