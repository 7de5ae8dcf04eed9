#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The tools of the other tests."""
import pathlib
import socket
import subprocess
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import fleet  # noqa: E402


class FreePortTest(unittest.TestCase):
    def test_nothing_that_the_system_chooses_gets_it(self):
        with open("/proc/sys/net/ipv4/ip_local_port_range") as f:
            first_ephemeral = int(f.read().split()[0])
        ports = [fleet.free_port() for _ in range(20)]
        self.assertEqual(len(set(ports)), 20)
        self.assertLess(max(ports), first_ephemeral)

    def test_one_that_is_in_use_is_not_given(self):
        taken = fleet.free_port()
        fleet._port_locks.pop().close()
        with socket.socket() as s:
            s.bind(("127.0.0.1", taken))
            self.assertNotIn(taken, [fleet.free_port() for _ in range(20)])

    def test_another_process_gets_another(self):
        # With the same process id the search would begin at the same port.
        program = (f"import os; os.getpid = lambda: {fleet.os.getpid()}; import sys; "
                   f"sys.path.insert(0, {str(HERE)!r}); import fleet; print(fleet.free_port())")
        mine = fleet.free_port()
        other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True,
                               check=True)
        self.assertNotEqual(int(other.stdout), mine)


if __name__ == "__main__":
    unittest.main(verbosity=2)
