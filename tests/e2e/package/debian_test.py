#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian package: it is made twice alike, depends on what its programs load, and they answer."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import fleet  # noqa: E402

CONFIG = fleet.BIN.parent / "CPackConfig.cmake"
ENVIRONMENT = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}


def make_package(folder):
    made = subprocess.run(["cpack", "--config", CONFIG, "-B", folder], env=ENVIRONMENT,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        raise RuntimeError(made.stdout)
    return next(pathlib.Path(folder).glob("*.deb"))


class DebianTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="continuo-debian-")
        cls.addClassCleanup(folder.cleanup)
        cls.root = pathlib.Path(folder.name)
        cls.package = make_package(cls.root / "first")
        subprocess.run(["dpkg-deb", "-x", cls.package, cls.root / "installed"], check=True)

    def test_equal_sources_make_equal_bytes(self):
        again = make_package(self.root / "second")
        self.assertEqual(again.name, self.package.name)
        self.assertEqual(again.read_bytes(), self.package.read_bytes())

    def test_it_depends_on_what_its_programs_load(self):
        depends = subprocess.run(["dpkg-deb", "-f", self.package, "Depends"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
        packages = {re.match(r"[^ ]+", part.strip()).group() for part in depends.split(",")}
        for begin in ("libc6", "libgrpc++", "libprotobuf", "libssl"):
            self.assertTrue(any(name.startswith(begin) for name in packages), (begin, packages))

    def test_its_programs_answer(self):
        installed = self.root / "installed/usr"
        built_bin, fleet.BIN = fleet.BIN, installed / "bin"
        self.addCleanup(setattr, fleet, "BIN", built_bin)
        worker = fleet.start_worker(installed / "share/continuo/demo-model", "--threads=1",
                                    "--kv_cache_memory=32MiB")
        self.addCleanup(worker.kill)
        gateway = fleet.start_gateway([worker])
        self.addCleanup(gateway.kill)
        fleet.Client(gateway.address).wait_for_model()
        answer = subprocess.run(
            [installed / "bin/continuo", "generate", f"--server={gateway.address}",
             "--max_tokens=5", "Mira lives"], check=True, stdout=subprocess.PIPE, text=True)
        self.assertNotEqual(answer.stdout.strip(), "")


if __name__ == "__main__":
    unittest.main()
