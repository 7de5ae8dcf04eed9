#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The chart comes out of an OCI registry as it went in: docs/release.md pushes it, operators install it from there."""
import hashlib
import json
import pathlib
import tempfile
import unittest

import chart
from registry import Registry


class RegistryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.registry = Registry(cls.folder.name)
        cls.addClassCleanup(cls.registry.stop)
        done = cls.helm("package", chart.CHART, "--destination", cls.folder.name)
        cls.package = pathlib.Path(done.rpartition(" ")[2].strip())
        cls.version = cls.package.stem.removeprefix("continuo-")
        cls.charts = f"oci://{cls.registry.address}/charts"
        cls.helm("push", cls.package, cls.charts, "--plain-http")

    @classmethod
    def helm(cls, *arguments):
        done = chart.run("helm", *arguments, "--repository-cache", pathlib.Path(cls.folder.name) / "cache",
                         "--registry-config", pathlib.Path(cls.folder.name) / "registry.json")
        if done.returncode != 0:
            raise AssertionError(done.stderr)
        return done.stdout

    def from_registry(self, *arguments):
        return self.helm("template", "r", f"{self.charts}/continuo", "--plain-http", "--namespace", "prod",
                         *arguments)

    def test_it_renders_what_the_folder_renders(self):
        for values in ([], ["--version", self.version]):
            with self.subTest(values):
                self.assertEqual(chart.without_token(self.from_registry(*chart.MINIMAL, *values)),
                                 chart.without_token(chart.render(*chart.MINIMAL)))
        for example in chart.EXAMPLES[:3]:
            self.assertEqual(chart.without_token(self.from_registry("--values", example)),
                             chart.without_token(chart.render("--values", example)), example)

    def test_the_package_is_found_by_its_digest(self):
        manifest, digest = self.registry.manifest("charts/continuo", self.version)
        layers = [layer["digest"] for layer in json.loads(manifest)["layers"]]
        self.assertIn("sha256:" + hashlib.sha256(self.package.read_bytes()).hexdigest(), layers)
        pulled = pathlib.Path(self.folder.name) / "pulled"
        pulled.mkdir()
        self.helm("pull", f"{self.charts}/continuo@{digest}", "--plain-http", "--destination", pulled)
        self.assertEqual(next(pulled.glob("*.tgz")).read_bytes(), self.package.read_bytes())
        self.assertEqual(chart.without_token(self.helm("template", "r", next(pulled.glob("*.tgz")), "--namespace",
                                                       "prod", *chart.MINIMAL)),
                         chart.without_token(chart.render(*chart.MINIMAL)))

    def test_a_version_that_is_not_there_is_said_so(self):
        with self.assertRaisesRegex(AssertionError, "99.0.0: not found"):
            self.from_registry(*chart.MINIMAL, "--version", "99.0.0")


if __name__ == "__main__":
    unittest.main()
