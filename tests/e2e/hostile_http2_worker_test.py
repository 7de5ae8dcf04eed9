#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The hostile HTTP/2 client of hostile_http2_test against a worker itself."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import fleet  # noqa: E402
import hostile_http2_test as hostile  # noqa: E402


class HostileHttp2WorkerTest(hostile.HostileHttp2Test):
    @classmethod
    def setUpClass(cls):
        # The server under test, under the name that the tests know.
        cls.gateway = fleet.start_worker(
            fleet.DEMO_MODEL, "--threads=1", "--kv_blocks=512", "--max_receive_bytes=8MiB",
            "--max_buffer_bytes=64MiB", "--max_streams_per_connection=1024",
            env=hostile.ENVIRONMENT)
        cls.client = fleet.Client(cls.gateway.address)
        cls.undisturbed = cls.client.generate(hostile.long_request()).comparable()

    @classmethod
    def tearDownClass(cls):
        assert cls.gateway.terminate() == 0


if __name__ == "__main__":
    unittest.main(verbosity=2)
