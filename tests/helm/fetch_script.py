# SPDX-License-Identifier: Apache-2.0
"""The scripts of the chart's init containers that fetch models, run as Kubernetes would."""
import os
import pathlib
import signal
import subprocess
import tempfile
import unittest

import chart


class FetchScriptTest(unittest.TestCase):
    """A test has a folder of its own. The model belongs at `target`."""
    values = ""            # of the pool's model, as Helm's --set takes them
    path = os.environ["PATH"]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.target = self.folder / "models/m/source"

    def start(self, **more):
        """Starts the script with `more` in its environment, in a process group of its own, as a container is
        ended."""
        # Kubernetes passes it as an argument of sh -c.
        pod = next(p for _, p in chart.pods(chart.objects("--set", self.values)) if "initContainers" in p)
        container = pod["initContainers"][0]
        self.assertNotIn("$" + "$", container["args"][0])
        environment = {e["name"]: e["value"] for e in container["env"]}
        self.assertIn(f"--model={environment['TARGET']}", pod["containers"][0]["args"])
        process = subprocess.Popen(
            [*container["command"], *container["args"]], text=True, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, process_group=0,
            env={"PATH": self.path, "TMPDIR": str(self.folder)} | environment | {"TARGET": str(self.target)} | more)
        self.addCleanup(self.end, process)
        return process

    def end(self, process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        process.stdout.close()
        process.stderr.close()

    def has_to_wait(self, process):
        """Another pod has the lock."""
        self.assertIn("waiting for another pod", process.stdout.readline())

    def ends_as_it_is_told_to(self, process):
        self.has_to_wait(process)
        process.terminate()
        self.assertEqual(process.wait(60), 143)
