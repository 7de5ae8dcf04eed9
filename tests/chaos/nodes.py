# SPDX-License-Identifier: Apache-2.0
"""Gateways and workers that come back at the same address after every end, and what they hold:
descriptors, memory, requests, KV blocks."""
import collections
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import fleet
from stopped_thread import StoppedThread

# The port is free, since the network namespaces are our own.
WORKER_PORT, GATEWAY_PORT, HTTP_PORT, METRICS_PORT = 50051, 50050, 8080, 9090
EXIT_TIMEOUT_S = 60
ARENA_BYTES = 64 << 20
STACK_BYTES = 8 << 20  # of a thread: glibc's default, the soft limit of the shell


def _build_heap_probe():
    library = pathlib.Path(tempfile.mkdtemp(prefix="continuo-chaos-")) / "heap_probe.so"
    source = pathlib.Path(__file__).with_name("heap_probe.c")
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-pthread"], check=True)
    return str(library)


ENVIRONMENT = {"LD_PRELOAD": _build_heap_probe(),
               "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}


def _own_memory_kib(pid):
    """Memory that no file backs: `anonymous`, resident; and `mapped`, touched or not, without
    glibc's heaps ([heap], and below it arenas, which begin at multiples of their greatest size
    where the system has not joined them with a neighbour). Stacks are in neither: each keeps the
    depth of its thread's deepest moment."""
    mapped = anonymous = 0
    guard = None  # where the inaccessible pages before this mapping end
    for line in pathlib.Path(f"/proc/{pid}/smaps").read_text().splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+ *(.*)$", line)
        if head:
            begin, end, access, name = int(head[1], 16), int(head[2], 16), head[3], head[4]
            stack = name == "[stack]" or (guard == begin and end - begin == STACK_BYTES and not name)
            guard = end if access == "---p" else None
            arena = begin % ARENA_BYTES == 0 and not name
            if access == "rw-p" and name != "[heap]" and not arena and not stack:
                mapped += (end - begin) // 1024
        elif line.startswith("Anonymous:") and not stack:
            anonymous += int(line.split()[1])
    return {"mapped": mapped, "anonymous": anonymous}


class Node:
    """A program in its place. `down`: not to be counted on, until it listens again; `ended`: nor are
    the connections to it."""

    def __init__(self, name, start):
        self.name, self._start = name, start
        self.program, self.down, self.ended, self.epoch = None, True, True, 0

    def start(self):
        self.program = self._start()
        self.program.wait_until_listening()
        self.down = self.ended = False

    def check_alive(self):
        status = self.program.process.poll()
        if status is not None:
            raise RuntimeError(f"{self.name} ended by itself with {status}:\n" +
                               "\n".join(self.program.lines[-20:]))

    def lose(self):
        """Called just before the node ends or becomes unreachable."""
        self.epoch += 1
        self.down = self.ended = True

    def kill(self):
        self.lose()
        self.program.kill()

    def begin_end(self):
        self.lose()
        self.program.signal(signal.SIGTERM)

    def stop(self):
        """Without an end of what it has."""
        self.down = True
        self.program.signal(signal.SIGSTOP)

    def go_on(self):
        self.program.signal(signal.SIGCONT)
        self.down = False

    def has_ended(self):
        return self.program.process.poll() is not None

    def restart(self):
        """Starts the node again. Called after begin_end()."""
        status = self.program.process.wait(EXIT_TIMEOUT_S)
        if status != 0:
            raise RuntimeError(f"{self.name} ended with {status} after SIGTERM:\n" +
                               "\n".join(self.program.lines[-20:]))
        self.program.kill()  # forgets it
        self.start()

    @property
    def pid(self):
        return self.program.process.pid

    def descriptors(self):
        """Open files by kind."""
        kinds = collections.Counter()
        for entry in pathlib.Path(f"/proc/{self.pid}/fd").iterdir():
            try:
                kinds[re.sub(r":?\[?\d+\]?$", "", os.readlink(entry))] += 1
            except FileNotFoundError:
                pass
        return dict(sorted(kinds.items()))

    def memory_kib(self):
        """The memory that the heap uses, the process's other memory, the memory that is resident
        after free memory was given back, and the number of threads."""
        self.program.signal(signal.SIGUSR2)
        heap = self.program.wait_for_log("heap")["in_use_bytes"] // 1024
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return {"heap": heap, **_own_memory_kib(self.pid),
                "resident": int(re.search(r"VmRSS:\s+(\d+)", status)[1]),
                "threads": int(re.search(r"Threads:\s+(\d+)", status)[1])}

    def sum_of(self, *names):
        """The sum of a metric's series, for each name."""
        series = fleet.scrape(self.metrics_address)
        return {name: sum(v for k, v in series.items() if k.split("{")[0] == name)
                for name in names}


class WorkerNode(Node):
    def __init__(self, number, namespace, model, flags):
        self.namespace, self.address = namespace, f"{namespace.address}:{WORKER_PORT}"
        self.metrics_address = f"{namespace.address}:{METRICS_PORT}"
        self._stopped = None
        super().__init__(f"worker {number}", lambda: fleet.Program(
            "continuo-worker", f"--model={model}", f"--listen={self.address}",
            f"--metrics_listen={self.metrics_address}", f"--worker_name=worker-{number}", *flags,
            prefix=namespace.prefix, env=ENVIRONMENT))

    def block_engine(self):
        self.lose()
        self._stopped = StoppedThread(self.pid, "engine")

    def unblock_engine(self):
        self._stopped.resume()
        self.down = False

    def cut(self):
        self.lose()
        self.namespace.cut()

    def join(self):
        self.namespace.join()
        self.down = False

    def holds(self):
        """The resources that it holds for requests: all 0 when there are none."""
        return self.sum_of("continuo_running_requests", "continuo_waiting_requests",
                           "continuo_waiting_prompt_tokens", "continuo_kv_blocks_used",
                           "continuo_kv_blocks_unaccounted")


class GatewayNode(Node):
    def __init__(self, number, workers, flags):
        self.address = f"127.0.0.1:{GATEWAY_PORT + number}"
        self.metrics_address = f"127.0.0.1:{METRICS_PORT + number}"
        addresses = ",".join(worker.address for worker in workers)
        super().__init__(f"gateway {number}", lambda: fleet.Program(
            "continuo-gateway", f"--workers={addresses}", f"--listen={self.address}",
            f"--http_listen=127.0.0.1:{HTTP_PORT + number}",
            f"--metrics_listen={self.metrics_address}", *flags, env=ENVIRONMENT))
        self.client = None

    def start(self):
        super().start()
        # A channel that saw the end of the last process would go on failing for a while.
        self.client = fleet.Client(self.address)

    def reconnect(self):
        self.client.channel.close()
        self.client = fleet.Client(self.address)

    def holds(self):
        return self.sum_of("continuo_gateway_open_streams", "continuo_gateway_queued_requests",
                           "continuo_gateway_queued_prompt_tokens")
