# SPDX-License-Identifier: Apache-2.0
"""Debian's docker-registry on a free port of this machine, for charts and images."""
import pathlib
import re
import subprocess
import threading
import urllib.request

import chart

WAIT_S = 60
CONFIG = """
version: 0.1
log: {{level: info, formatter: json, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:0"}}
"""
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Registry:
    """Keeps what is pushed in a folder that the caller makes and removes."""

    def __init__(self, folder):
        folder = pathlib.Path(folder)
        config = folder / "registry.yaml"
        config.write_text(CONFIG.format(folder=folder / "registry"))
        self.process = subprocess.Popen([chart.TOOLS / "docker-registry", "serve", config],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        told = []
        for line in self.process.stderr:
            told.append(line)
            if found := re.search(r'"msg":"listening on ([^"]+)"', line):
                self.address = found.group(1)
                break
        else:
            raise RuntimeError(f"docker-registry ended with {self.process.wait()}: {''.join(told)}")
        self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.reader.start()

    def manifest(self, repository, tag):
        """(bytes, digest) of the manifest."""
        call = urllib.request.Request(f"http://{self.address}/v2/{repository}/manifests/{tag}",
                                      headers={"Accept": MANIFEST})
        with urllib.request.urlopen(call, timeout=WAIT_S) as answer:
            return answer.read(), answer.headers["Docker-Content-Digest"]

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
