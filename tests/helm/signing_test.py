#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What scripts/publish.py publishes with a key is signed by it, each image of an index too."""
import json
import os
import subprocess
import unittest

import chart
from releases import IMAGES, ReleasesTest

COSIGN = chart.ROOT / "build/cosign/bin/cosign"


@unittest.skipUnless(COSIGN.exists(), "scripts/cosign.sh has not run")
class SigningTest(ReleasesTest):
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


if __name__ == "__main__":
    unittest.main()
