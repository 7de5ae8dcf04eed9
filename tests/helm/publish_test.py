#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/publish.py brings releases of two architectures to a registry: an index of both images, bills of
materials and provenance where tools look for them, the same digests each time, and nothing of a release whose
files are not what its digests say."""
import json
import re
import shutil
import unittest

from releases import COMMIT, IMAGES, ORAS, ReleasesTest, sign


@unittest.skipUnless(ORAS.exists(), "scripts/oras.sh has not run")
class PublishTest(ReleasesTest):
    def refusal(self, *folders):
        done = self.publish(*folders)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_images_of_two_architectures_with_what_is_known_of_them(self):
        done = self.publish()
        self.assertEqual(done.returncode, 0, done.stderr)
        published = done.stdout.splitlines()
        self.assertEqual([re.sub("@sha256:[0-9a-f]{64}$", "", p) for p in published],
                         [f"{self.registry.address}/{n}" for n in (*IMAGES, "charts/continuo")])
        version = self.releases[0].joinpath("SHA256SUMS").read_text()
        version = re.search(r"continuo-([0-9.]+)\.tgz", version)[1]
        for image, address in zip(IMAGES, published):
            name = f"{self.registry.address}/{image}"
            self.assertEqual(self.oras("resolve", "--plain-http", f"{name}:{version}").strip(),
                             address.partition("@")[2])
            index = json.loads(self.oras("manifest", "fetch", "--plain-http", address))
            self.assertEqual([m["platform"] for m in index["manifests"]],
                             [{"architecture": a, "os": "linux"} for a in ("amd64", "arm64")])
            for manifest, release in zip(index["manifests"], self.releases):
                self.has(f"{name}@{manifest['digest']}", {
                    "application/vnd.cyclonedx+json": release / f"{image}.sbom.cdx.json",
                    "application/vnd.in-toto+json": release / "provenance.intoto.json"})
        again = self.publish()
        self.assertEqual((again.returncode, again.stdout), (0, done.stdout), again.stderr)

    def test_a_log_is_of_signatures(self):
        done = self.publish(options=["--transparency_log"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("--transparency_log needs --key", done.stderr)

    def test_a_key_that_is_none(self):
        done = self.publish(options=["--key", self.folder / "nowhere.key"])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("cosign", done.stderr)

    def has(self, subject, files):
        """The subject's referrers are these files."""
        told = json.loads(self.oras("discover", "--plain-http", "--format=json", subject))
        referrers = told.get("referrers", told.get("manifests"))
        self.assertEqual(sorted(r["artifactType"] for r in referrers), sorted(files))
        for referrer in referrers:
            file = files[referrer["artifactType"]]
            out = self.folder / "pulled"
            self.oras("pull", "--plain-http", "-o", out, referrer["reference"])
            self.assertEqual((out / file.name).read_bytes(), file.read_bytes())
            shutil.rmtree(out)

    def test_files_that_are_not_those_of_the_digests(self):
        file = self.releases[1] / "continuo-cli.sbom.cdx.json"
        file.write_text("{}")
        self.assertIn(f"{file} is not the file of SHA256SUMS", self.refusal())

    def test_a_statement_that_is_of_other_files(self):
        statement = self.releases[0] / "provenance.intoto.json"
        statement.write_text(statement.read_text().replace("continuo-cli.tar", "continuo-cli.zip"))
        self.assertIn(f"{statement} is not of these files", self.refusal())

    def test_releases_of_two_commits(self):
        sign(self.releases[1], commit=COMMIT[::-1])
        self.assertIn("the releases differ in their commit", self.refusal())

    def test_one_architecture_twice(self):
        self.assertIn("continuo-gateway is there twice for one architecture: amd64, amd64",
                      self.refusal(self.releases[0], self.releases[0]))

    def test_a_release_without_images(self):
        (self.releases[0] / "continuo-gateway.tar").unlink()
        sign(self.releases[0])
        self.assertIn("has no continuo-gateway.tar", self.refusal())


if __name__ == "__main__":
    unittest.main()
