#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the gateway beside nginx's grpc_pass and the least that a proxy on gRPC can
cost (floor_proxy) over gRPC, and beside smg over HTTP, in one run.

Workers are canned (canned_worker: answers without a model, so that the load is the gateway's), the
load is nghttp2's h2load, CPU is user and system time of the process under test. Each figure is the
median of --rounds rounds, the programs taking turns. Needs what `scripts/setup.sh --all` installs,
and the release preset built. Prints each figure beside its goal and as a ratio of it, and writes
build/bench/gateway.json. Ends with 1 where a program could not be run or a request failed; a goal
that is missed is only told, since these figures move with the machine.
"""
import argparse
import collections
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402

BENCH, BIN = ROOT / "build/release/bench", ROOT / "build/release/bin"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
METHOD = "continuo.v1.InferenceService/Generate"
HELD_STREAMS = 10000
REQUESTS, LONG_REQUESTS, LATENCY_REQUESTS = 10000, 100, 1000
STREAMS, STREAM_MESSAGES, CHATS = 40, 5000, 5000
FIRST_TOKEN = "time to the first token, p50 us"
GOALS = {  # by row: at most, or at least
    "CPU a request with one message, us": ("<=", 30),
    "CPU a prompt of 100k ids, us": ("<=", 2000),
    FIRST_TOKEN: ("<=", 150),  # above that of the worker itself
    "messages a core-second, 1 tokens each": (">=", 70000),
    "messages a core-second, 4 tokens each": (">=", 50000),  # 200,000 tokens
}
HELD_GOAL = ("<=", 1024)
PEER_MAY_FAIL = 0.001  # of its requests
failed_requests = collections.Counter()  # by target


class Target:
    """A program under test: the processes that count, and where it listens.

    may_fail: of a peer, how many of its requests may go wrong; of ours none may.
    """

    def __init__(self, name, address, pids, http=False, may_fail=0.0):
        self.name, self.address, self.pids, self.http = name, address, pids, http
        self.may_fail = may_fail

    def cpu_s(self):
        ticks = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks * TICK_S

    def resident_mib(self):
        total = 0
        for pid in self.pids():
            with open(f"/proc/{pid}/status") as f:
                total += int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))
        return total / 1024


def children(pid):
    """The process and all below it."""
    found = [pid]
    for parent in found:
        for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
            found += [int(p) for p in (task / "children").read_text().split()]
    return found


def wait_for_port(address, process):
    import socket
    host, port = address.rsplit(":", 1)
    while process.poll() is None:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
            return
        except OSError:
            threading.Event().wait(0.05)  # polls another process; nothing to be notified by
    raise RuntimeError(f"{process.args[0]} ended with {process.returncode}")


class Bench:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []

    def spawn(self, *command, **keywords):
        log = open(self.folder / f"{len(self.processes)}.log", "wb")
        process = subprocess.Popen([str(c) for c in command], stderr=log, **keywords)
        self.processes.append(process)
        return process

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        self.processes.clear()

    def worker(self, *flags):
        process = self.spawn(BENCH / "canned_worker", *flags, stdout=subprocess.PIPE)
        return process.stdout.readline().decode().split()[1]

    def gateway(self, worker, http="off", flags=()):
        """The gateway's addresses as its log tells them; as a target, over gRPC."""
        process = self.spawn(BIN / "continuo-gateway", f"--workers={worker}",
                             "--listen=127.0.0.1:0", f"--http_listen={http}",
                             "--metrics_listen=127.0.0.1:0", *flags)
        log = self.folder / f"{len(self.processes) - 1}.log"
        while not (found := re.search(r'.*"message":"listening".*', log.read_text())):
            if process.poll() is not None:
                raise RuntimeError(f"the gateway ended:\n{log.read_text()}")
            threading.Event().wait(0.05)  # polls another process; nothing to be notified by
        record = json.loads(found.group())
        client = fleet.Client(record["address"])
        client.wait_for_model()
        client.channel.close()
        target = Target("continuo", record["address"], lambda: [process.pid])
        return target, record["metrics_address"], record["http_address"]

    def nginx(self, worker):
        address = f"127.0.0.1:{fleet.free_port()}"
        config = self.folder / "nginx.conf"
        config.write_text(f"""
daemon off; worker_processes 2; pid {self.folder}/nginx.pid; error_log stderr warn;
worker_rlimit_nofile 65536;
events {{ worker_connections 32768; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 1m;
  client_body_temp_path {self.folder}/body; proxy_temp_path {self.folder}/proxy;
  fastcgi_temp_path {self.folder}/fastcgi; uwsgi_temp_path {self.folder}/uwsgi;
  scgi_temp_path {self.folder}/scgi;
  http2_max_concurrent_streams 1024; keepalive_requests 1000000;
  upstream workers {{ server {worker}; keepalive 128; keepalive_requests 1000000; }}
  server {{ listen {address} http2; location / {{ grpc_pass grpc://workers; grpc_read_timeout 1h; }} }}
}}""")
        process = self.spawn("nginx", "-c", config)
        wait_for_port(address, process)
        return Target("nginx", address, lambda: children(process.pid), may_fail=PEER_MAY_FAIL)

    def floor(self, worker):
        process = self.spawn(BENCH / "floor_proxy", worker, stdout=subprocess.PIPE)
        return Target("floor", process.stdout.readline().decode().split()[1], lambda: [process.pid])

    def canned_http(self):
        """An OpenAI-style backend that says one thing, for the peer that takes HTTP workers."""
        address = f"127.0.0.1:{fleet.free_port()}"
        answer = json.dumps({
            "id": "x", "object": "chat.completion", "created": 1, "model": "canned",
            "choices": [{"index": 0, "finish_reason": "length",
                         "message": {"role": "assistant", "content": "word "}}],
            "usage": {"prompt_tokens": 16, "completion_tokens": 1, "total_tokens": 17}})
        models = json.dumps({"object": "list", "data": [{"id": "canned", "object": "model"}]})
        config = self.folder / "backend.conf"
        config.write_text(f"""
daemon off; worker_processes 1; pid {self.folder}/backend.pid; error_log stderr warn;
events {{ worker_connections 4096; }}
http {{
  access_log off; default_type application/json; keepalive_requests 1000000;
  client_body_temp_path {self.folder}/body2; proxy_temp_path {self.folder}/proxy2;
  fastcgi_temp_path {self.folder}/fastcgi2; uwsgi_temp_path {self.folder}/uwsgi2;
  scgi_temp_path {self.folder}/scgi2;
  server {{ listen {address};
    location /v1/chat/completions {{ return 200 '{answer}'; }}
    location /v1/models {{ return 200 '{models}'; }}
    location / {{ return 200 '{{}}'; }} }}
}}""")
        wait_for_port(address, self.spawn("nginx", "-c", config))
        return address

    def smg(self, backend):
        port, metrics = fleet.free_port(), fleet.free_port()
        process = self.spawn(ROOT / "build/peers/bin/python", "-m", "smg", "launch", "--host",
                             "127.0.0.1", "--port", port, "--worker-urls", f"http://{backend}",
                             "--policy", "round_robin", "--prometheus-port", metrics,
                             stdout=subprocess.DEVNULL)
        address = f"127.0.0.1:{port}"
        wait_for_port(address, process)
        self.wait_for_answer(address, process)
        return Target("smg", address, lambda: children(process.pid), http=True, may_fail=PEER_MAY_FAIL)

    @staticmethod
    def wait_for_answer(address, process):
        import urllib.error
        import urllib.request
        while process.poll() is None:
            request = urllib.request.Request(
                f"http://{address}/v1/chat/completions", data=CHAT.encode(),
                headers={"content-type": "application/json"})
            try:
                urllib.request.urlopen(request, timeout=5).close()
                return
            except (urllib.error.URLError, OSError):
                threading.Event().wait(0.1)  # polls another process
        raise RuntimeError(f"{process.args} ended with {process.returncode}")

    def request_file(self, name, num_prompt_tokens, max_tokens):
        request = pb.GenerateRequest()
        request.token_ids.ids.extend(range(1000, 1000 + num_prompt_tokens))
        request.stopping.max_tokens = max_tokens
        data = request.SerializeToString()
        path = self.folder / name
        path.write_bytes(b"\0" + len(data).to_bytes(4, "big") + data)
        return path


CHAT = json.dumps({"model": "canned", "max_tokens": 1,
                   "messages": [{"role": "user", "content": "once upon a time there was"}]})


def load(target, data, requests, connections, streams):
    """Runs h2load; the CPU that the target used in s, and the latencies in us."""
    with tempfile.NamedTemporaryFile() as log:
        kind = ["--h1", "-H", "content-type: application/json"] if target.http else \
            ["-H", "content-type: application/grpc", "-H", "te: trailers"]
        path = "v1/chat/completions" if target.http else METHOD
        begin, cpu = time.monotonic(), target.cpu_s()
        out = subprocess.run(
            ["h2load", "-n", str(requests), "-c", str(connections), "-m", str(streams), "-d",
             str(data), "--log-file", log.name, *kind, f"http://{target.address}/{path}"],
            capture_output=True, text=True, check=True).stdout
        cpu, wall = target.cpu_s() - cpu, time.monotonic() - begin
        good = int(re.search(r"status codes: (\d+) 2xx", out).group(1))
        failed_requests[target.name] += requests - good
        if requests - good > requests * target.may_fail:
            raise RuntimeError(f"{target.name}: {good} of {requests} requests went well\n{out}")
        micros = sorted(int(line.split()[2]) for line in open(log.name))
    return cpu, wall, micros


def check_ok(metrics, expected):
    """h2load does not look at grpc-status; the gateway's own count does."""
    series = fleet.scrape(metrics)
    ok = sum(v for k, v in series.items()
             if k.startswith("continuo_gateway_requests_total") and 'code="OK"' in k)
    if ok != expected:
        raise RuntimeError(f"the gateway counts {ok:.0f} requests that went well, not {expected}")


def grpc_rounds(bench, rounds, tokens_per_message):
    """{what: {target: [values]}} for one kind of worker."""
    worker = bench.worker(f"--tokens_per_message={tokens_per_message}")
    ours, metrics, _ = bench.gateway(worker)
    direct = Target("direct", worker, lambda: [])
    targets = [ours, bench.nginx(worker), bench.floor(worker), direct]
    one = bench.request_file("one", 16, 1)
    stream = bench.request_file("stream", 16, STREAM_MESSAGES * tokens_per_message)
    long_prompt = bench.request_file("long", 100000, 1)
    found, expected = {}, 0

    def add(what, target, value):
        found.setdefault(what, {}).setdefault(target.name, []).append(value)

    for _ in range(rounds):
        for target in targets:
            is_proxy = target is not direct  # of a worker the CPU is its own
            if tokens_per_message == 1:
                cpu, wall, _ = load(target, one, REQUESTS, 4, 16)
                add("requests a second", target, REQUESTS / wall)
                add(FIRST_TOKEN, target, float(subprocess.run(
                    [BENCH / "first_token", target.address, str(LATENCY_REQUESTS)],
                    capture_output=True, text=True, check=True).stdout))
                if is_proxy:
                    add("CPU a request with one message, us", target, cpu / REQUESTS * 1e6)
                    cpu, _, _ = load(target, long_prompt, LONG_REQUESTS, 2, 2)
                    add("CPU a prompt of 100k ids, us", target, cpu / LONG_REQUESTS * 1e6)
            if is_proxy:
                cpu, _, _ = load(target, stream, STREAMS, 4, 4)
                add(f"messages a core-second, {tokens_per_message} tokens each", target,
                    STREAMS * STREAM_MESSAGES / cpu)
        expected += STREAMS
        if tokens_per_message == 1:
            expected += REQUESTS + LATENCY_REQUESTS + LATENCY_REQUESTS // 10 + LONG_REQUESTS
    check_ok(metrics, expected)
    bench.stop()
    return found


def held_streams(bench):
    """Memory with HELD_STREAMS streams open that get a token a second each."""
    worker = bench.worker("--interval=1s")
    ours, metrics, _ = bench.gateway(worker)
    data = bench.request_file("held", 16, 20)
    result = {}
    for target in [ours, bench.nginx(worker)]:
        idle, peak, done = target.resident_mib(), 0, threading.Event()

        def watch():
            nonlocal peak
            while not done.wait(0.1):
                peak = max(peak, target.resident_mib())
        thread = threading.Thread(target=watch)
        thread.start()
        try:
            load(target, data, HELD_STREAMS, HELD_STREAMS // 100, 100)
        finally:
            done.set()
            thread.join()
        result[target.name] = {"idle": idle, "peak": peak}
    check_ok(metrics, HELD_STREAMS)
    bench.stop()
    return result


def http_rounds(bench, rounds):
    worker = bench.worker()
    ours, metrics, http_address = bench.gateway(worker, http="127.0.0.1:0")
    targets = [Target("continuo", http_address, ours.pids, http=True),
               bench.smg(bench.canned_http())]
    data = bench.folder / "chat.json"
    data.write_text(CHAT)
    found = {}
    for _ in range(rounds):
        for target in targets:
            cpu, wall, _ = load(target, data, CHATS, 16, 1)
            for what, value in (("CPU a chat completion, us", cpu / CHATS * 1e6),
                                ("chat completions a second", CHATS / wall)):
                found.setdefault(what, {}).setdefault(target.name, []).append(value)
    check_ok(metrics, rounds * CHATS)
    bench.stop()
    return found


def beside_goal(goal, figure, of=""):
    """The ratio of a figure to its goal, as text; below 1.00 times is better where less is wanted.
   """
    order, bound = goal
    reached = figure <= bound if order == "<=" else figure >= bound
    return (f"(goal {order} {bound:,}{of}; {figure / bound:.2f} times that"
            f"{'' if reached else ', MISSED'})")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", default=str(ROOT / "build/bench/gateway.json"))
    options = parser.parse_args()
    report = {"rounds": options.rounds, "goals": {**GOALS, "held": HELD_GOAL}}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder)
        try:
            report["grpc"] = grpc_rounds(bench, options.rounds, 1)
            report["grpc"].update(grpc_rounds(bench, options.rounds, 4))
            report["http"] = http_rounds(bench, options.rounds)
            report["held MiB"] = held_streams(bench)
            report["failed requests"] = dict(failed_requests)
        finally:
            bench.stop()
    for part in ("grpc", "http"):
        for what, by_target in report[part].items():
            cells = {name: statistics.median(values) for name, values in by_target.items()}
            report[part][what] = {"median": cells, "rounds": by_target}
            goal = ""
            if what in GOALS:
                is_added = what == FIRST_TOKEN
                figure = cells["continuo"] - (cells["direct"] if is_added else 0)
                goal = beside_goal(GOALS[what], figure, " above direct" if is_added else "")
            print(f"{what:<42}" +
                  "".join(f"{name} {value:,.0f}   " for name, value in cells.items()) + goal)
    for name, value in report["held MiB"].items():
        print(f"{HELD_STREAMS} streams held: {name} {value['peak']:.0f} MiB, "
              f"{value['idle']:.0f} idle " +
              (beside_goal(HELD_GOAL, value["peak"]) if name == "continuo" else ""))
    for name, failed in failed_requests.items():
        if failed > 0:
            print(f"{name} failed {failed} requests")
    pathlib.Path(options.json).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(options.json).write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
