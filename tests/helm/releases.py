# SPDX-License-Identifier: Apache-2.0
"""Releases of two architectures and a registry to which scripts/publish.py brings them."""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile
import tempfile
import unittest

import chart
from registry import Registry

PUBLISH = chart.ROOT / "scripts/publish.py"
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


class ReleasesTest(unittest.TestCase):
    """A test that has both, and runs the programs on them."""

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

    def oras(self, *arguments):
        done = subprocess.run([str(a) for a in (ORAS, *arguments)], text=True, capture_output=True,
                              cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout
