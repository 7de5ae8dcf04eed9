# SPDX-License-Identifier: Apache-2.0
"""A registry for tests: Debian's docker-registry on a free port of this machine."""
import pathlib
import re
import subprocess
import threading

import chart

CONFIG = """
version: 0.1
log: {{level: info, formatter: json, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:0"}}
"""


class Registry:
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

    def stop(self):
        self.process.terminate()
        self.process.wait()
        self.reader.join()
        self.process.stderr.close()
