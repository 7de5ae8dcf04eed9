#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that are linked with CUDA: the libraries that they ask for, and how the worker ends on a
machine without a driver.

    linked_worker_test.py CUDA_MAJOR WORKER PROGRAM...
"""
import ctypes
import json
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CUDA, *PROGRAMS = sys.argv[1:]


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
        return True
    except OSError:
        return False


class LinkedWorkerTest(unittest.TestCase):
    def test_what_programs_ask_for(self):
        for program in PROGRAMS:
            dynamic = subprocess.run(["readelf", "--dynamic", "--wide", program], check=True,
                                     capture_output=True, text=True).stdout
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
            for library in (f"libcudart.so.{CUDA}", f"libcublasLt.so.{CUDA}", "libnccl.so.2"):
                self.assertIn(library, needed, program)
            # The driver's libraries are not on every machine.
            for library in needed:
                self.assertFalse(library.startswith(("libcuda.so", "libnvidia-ml")), needed)

    @unittest.skipIf(has_driver(), "this machine has a driver")
    def test_without_a_driver_the_worker_ends_with_one_line_that_says_so(self):
        ended = subprocess.run(
            [PROGRAMS[0], "--device=cuda:0", f"--model={ROOT / 'deploy/demo-model'}",
             "--listen=127.0.0.1:0", "--metrics_listen=127.0.0.1:0"],
            capture_output=True, text=True, timeout=60)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertEqual(ended.stdout, "")
        records = [json.loads(line) for line in ended.stderr.splitlines()]
        self.assertEqual([r["message"] for r in records], ["loading", "the worker ends"])
        self.assertEqual(records[-1]["severity"], "ERROR")
        self.assertIn("no CUDA driver: libcuda.so.1 was not found", records[-1]["reason"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
