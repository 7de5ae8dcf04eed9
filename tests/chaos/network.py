# SPDX-License-Identifier: Apache-2.0
"""A network namespace joined to ours by one link that can be cut.

A cut drops packets without a word: no FIN, no RST, and no route is lost on our side. Needs root
in a namespace of our own, see run.sh. The namespace ends with its last process.
"""
import atexit
import subprocess


def _run(*command):
    subprocess.run([str(word) for word in command], check=True)


class Namespace:
    """The `number`-th; its address is `address`, ours on the link is one less."""

    def __init__(self, number):
        self.address = f"10.77.{number}.2"
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec sleep infinity"], stdout=subprocess.PIPE)
        atexit.register(self._holder.kill)
        self._holder.stdout.readline()  # it has its own namespace from here on
        # The command that runs its arguments inside the namespace.
        self.prefix = ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", "--"]
        near = f"chaos{number}"
        _run("ip", "link", "add", near, "type", "veth", "peer", "name", "eth0",
             "netns", self._holder.pid)
        _run("ip", "address", "add", f"10.77.{number}.1/30", "dev", near)
        _run("ip", "link", "set", near, "up")
        _run(*self.prefix, "ip", "address", "add", f"{self.address}/30", "dev", "eth0")
        for device in ("lo", "eth0"):
            _run(*self.prefix, "ip", "link", "set", device, "up")

    def cut(self):
        _run(*self.prefix, "ip", "link", "set", "eth0", "down")

    def join(self):
        _run(*self.prefix, "ip", "link", "set", "eth0", "up")
