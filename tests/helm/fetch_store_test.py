# SPDX-License-Identifier: Apache-2.0
"""helm/continuo/files/fetch_store.sh copies a model from an object store by rclone: by one pod at a time, and
a pod that was killed while it copied holds up nobody. A stand-in for rclone tells its arguments and waits
to be let go; the cluster test (deploy/cluster) has the program itself."""
import os
import signal
import unittest

from fetch_script import FetchScriptTest

# Tells that it runs by the name of a file, and ends with the code that it reads from a pipe.
RCLONE = """#!/bin/sh
echo "$@" >>"$RUNS/arguments"
read -r code <"$RUNS/codes"
exit "$code"
"""


class FetchStoreTest(FetchScriptTest):
    values = "pools.m.model.objectStore.uri=s3://a/b"

    def setUp(self):
        super().setUp()
        program = self.folder / "bin/rclone"
        program.parent.mkdir()
        program.write_text(RCLONE)
        program.chmod(0o755)
        os.mkfifo(self.folder / "codes")

    def start(self, **more):
        return super().start(PATH=f"{self.folder}/bin:{self.path}", RUNS=str(self.folder), **more)

    def let_go(self, code=0):
        """Ends the rclone that runs, or the next one; opening the pipe waits for it."""
        (self.folder / "codes").write_text(f"{code}\n")

    def runs(self):
        return (self.folder / "arguments").read_text().splitlines()

    def test_copies_with_as_many_connections_as_the_chart_says(self):
        process = self.start()
        self.let_go()
        self.assertEqual(process.wait(60), 0, process.stderr.read())
        self.assertEqual(self.runs(), [
            f"copy --transfers=2 --multi-thread-streams=4 :s3,env_auth:a/b {self.target}"])

    def test_connections_that_four_does_not_divide(self):
        for streams, transfers, parts in ((1, 1, 1), (6, 2, 3), (7, 7, 1), (64, 16, 4)):
            process = self.start(STREAMS=str(streams))
            self.let_go()
            self.assertEqual(process.wait(60), 0, process.stderr.read())
            self.assertIn(f"copy --transfers={transfers} --multi-thread-streams={parts} ", self.runs()[-1])

    def test_a_pod_that_waits_ends_when_it_is_told_to(self):
        self.start()
        with open(self.folder / "codes", "w"):  # its rclone runs
            self.ends_as_it_is_told_to(self.start())

    def test_a_copy_that_fails_is_told(self):
        process = self.start()
        self.let_go(7)
        self.assertEqual(process.wait(60), 7)

    def test_one_pod_at_a_time_copies_what_several_share(self):
        first = self.start()
        with open(self.folder / "codes", "w") as codes:  # the first one's rclone runs
            second, third = self.start(), self.start()
            for process in (second, third):
                self.has_to_wait(process)
            self.assertEqual(len(self.runs()), 1)
            codes.write("0\n")
        self.assertEqual(first.wait(60), 0)
        self.let_go()
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)  # one of the two has ended
        self.let_go()
        self.assertEqual((second.wait(60), third.wait(60)), (0, 0))
        self.assertEqual(len(self.runs()), 3)

    def test_a_pod_goes_on_where_one_was_killed(self):
        first = self.start()
        with open(self.folder / "codes", "w"):
            second = self.start()
            self.has_to_wait(second)
            (self.target / "a").mkdir(parents=True)
            (self.target / "a/b.safetensors.1234.partial").write_text("half")
            (self.target / "a/c.safetensors").write_text("whole")
            os.killpg(first.pid, signal.SIGKILL)
            first.wait(60)
        self.let_go()
        self.assertEqual(second.wait(60), 0)
        self.assertEqual([p.name for p in (self.target / "a").iterdir()], ["c.safetensors"])


if __name__ == "__main__":
    unittest.main()
