#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/publish.py brings releases of two architectures to a registry: an index of both images, bills of
materials and provenance where tools look for them, the same digests each time, and nothing of a release whose
files are not what its digests say."""
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

import chart
from registry import Registry

PUBLISH = chart.ROOT / "scripts/publish.py"
COSIGN = chart.ROOT / "build/cosign/bin/cosign"
ORAS = pathlib.Path(os.environ.get("ORAS", chart.ROOT / "build/oras/bin/oras"))
IMAGES = ("continuo-gateway", "continuo-worker-cpu", "continuo-cli")
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def archive(path, architecture):
    """An OCI archive as buildah writes it, with one small layer."""
    blobs = {}

    def put(content, **more):
        content = content if isinstance(content, bytes) else json.dumps(content).encode()
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"digest": f"sha256:{digest}", "size": len(content), **more}
    layer = f"{path.name} of {architecture}".encode()
    config = put({"architecture": architecture, "os": "linux", "rootfs": {
        "type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]}},
        mediaType="application/vnd.oci.image.config.v1+json")
    manifest = put({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": config,
                    "layers": [put(layer, mediaType="application/vnd.oci.image.layer.v1.tar")]},
                   mediaType="application/vnd.oci.image.manifest.v1+json")
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(path, "w") as tar:
        for name, content in blobs.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return manifest["digest"]


def sign(folder, commit=COMMIT):
    """Writes the digests and the statement of a release's files."""
    sums = {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())
            if p.name not in ("SHA256SUMS", "provenance.intoto.json")}
    (folder / "SHA256SUMS").write_text("".join(f"{d}  {n}\n" for n, d in sums.items()))
    (folder / "provenance.intoto.json").write_text(json.dumps({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": n, "digest": {"sha256": d}} for n, d in sums.items()],
        "predicate": {"buildDefinition": {"resolvedDependencies": [{"digest": {"gitCommit": commit}}]},
                      "runDetails": {"metadata": {"startedOn": "2026-01-01T00:00:00+00:00"}}}}))


@unittest.skipUnless(ORAS.exists(), "scripts/oras.sh has not run")
class PublishTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.registry = Registry(folder.name)
        self.addCleanup(self.registry.stop)
        self.releases = [self.release(a) for a in ("amd64", "arm64")]

    def release(self, architecture):
        folder = self.folder / architecture
        folder.mkdir()
        for image in IMAGES:
            archive(folder / f"{image}.tar", architecture)
            (folder / f"{image}.sbom.cdx.json").write_text(json.dumps({"image": image, "of": architecture}))
        done = chart.run("helm", "package", chart.CHART, "--destination", folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        sign(folder)
        return folder

    def publish(self, *folders, options=()):
        return subprocess.run([PUBLISH, "--plain_http", *options, self.registry.address, *(folders or self.releases)],
                              text=True, capture_output=True,
                              env={**os.environ, "ORAS": str(ORAS), "COSIGN_PASSWORD": "secret"})

    def refusal(self, *folders):
        done = self.publish(*folders)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def oras(self, *arguments):
        done = subprocess.run([str(a) for a in (ORAS, *arguments)], text=True, capture_output=True,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

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

    @unittest.skipUnless(COSIGN.exists(), "scripts/cosign.sh has not run")
    def test_what_is_published_is_signed_by_the_key(self):
        for name in ("ours", "other"):
            subprocess.run([COSIGN, "generate-key-pair", f"--output-key-prefix={name}"], check=True,
                           cwd=self.folder, env={**os.environ, "COSIGN_PASSWORD": "secret"}, capture_output=True)

        def verify(address, key="ours.pub"):
            return subprocess.run([COSIGN, "verify", "--key", self.folder / key, "--insecure-ignore-tlog",
                                   "--allow-http-registry", address], text=True, capture_output=True)
        unsigned = self.publish()
        self.assertEqual(unsigned.returncode, 0, unsigned.stderr)
        self.assertIn("no signatures found", verify(unsigned.stdout.split()[0]).stderr)
        done = self.publish(options=["--key", self.folder / "ours.key"])
        self.assertEqual((done.returncode, done.stdout), (0, unsigned.stdout), done.stderr)
        for address in done.stdout.split():
            digest = address.partition("@")[2]
            verified = verify(address)
            self.assertEqual(verified.returncode, 0, verified.stderr)
            self.assertEqual(json.loads(verified.stdout)[0]["critical"]["image"]["docker-manifest-digest"], digest)
            self.assertNotEqual(verify(address, "other.pub").returncode, 0)
        # So are the images that an index is of.
        index = json.loads(self.oras("manifest", "fetch", "--plain-http", done.stdout.split()[0]))
        for manifest in index["manifests"]:
            address = f"{self.registry.address}/{IMAGES[0]}@{manifest['digest']}"
            self.assertEqual(verify(address).returncode, 0)

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
