#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The stock clients' calls again, while workers are killed in the middle of their answers: what the
clients get is what they get from workers that nobody kills."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import clients_test  # noqa: E402
import tools_test  # noqa: E402
from kills import Kills  # noqa: E402


class PythonTest(Kills, clients_test.PythonTest):
    pass


class NodeTest(Kills, clients_test.NodeTest):
    pass


class JavaTest(Kills, clients_test.JavaTest):
    pass


class ShellTest(Kills, clients_test.ShellTest):
    WITHOUT_STREAMS = ("test_curl_compressed",)


class AiderTest(Kills, tools_test.AiderTest):
    test_a_context_that_is_too_long = None  # it has no answer to cut


class LoadTest(Kills, tools_test.LoadTest):
    pass


if __name__ == "__main__":
    unittest.main()
