#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what it costs a gateway to watch a large fleet, and whether it loses healthy workers.

One gateway before --workers fake workers, idle and busy, that only report (fake_fleet); with and
without a limit of half a core, which a cgroup keeps and so needs root. Several gateways
(--gateway NAME=PROGRAM) are measured in turn, to compare builds. Prints a line for each cell and
writes build/bench/fleet.json: CPU of the gateway in cores, reports a second, CPU a report, resident
memory, the oldest report's age, the workers that serve at the end, and how many times a worker was
said to be silent or lost though all were well the whole time.
"""
import argparse
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[3]
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PERIOD_US = 100_000


def cpu_s(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


class CpuLimit:
    """A cgroup of version 1 or 2 that holds a process to a share of a core."""

    def __init__(self, cores):
        name = f"continuo-bench-{os.getpid()}"
        quota = int(cores * PERIOD_US)
        if pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
            self.folder = pathlib.Path("/sys/fs/cgroup") / name
            self.folder.mkdir()
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD_US}")
        else:
            self.folder = pathlib.Path("/sys/fs/cgroup/cpu") / name
            self.folder.mkdir()
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))

    def add(self, pid):
        (self.folder / "cgroup.procs").write_text(str(pid))

    def close(self):
        self.folder.rmdir()


def addresses(count, port):
    return ",".join(f"127.0.{1 + i // 250}.{1 + i % 250}:{port}" for i in range(count))


class Fleet:
    def __init__(self, busy):
        self.process = subprocess.Popen(
            [ROOT / "build/release/bench/fake_fleet"] + (["--busy"] if busy else []),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().split()[1])

    def counts(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        words = self.process.stdout.readline().split()
        return {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def gauge(metrics, name, labels=""):
    found = re.search(rf"^{name}{{{labels}}} (\S+)|^{name} (\S+)", metrics, re.M)
    return float(found.group(1) or found.group(2)) if found else 0.0


def read_metrics(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        return answer.read().decode()


def measure(program, workers, busy, cores, seconds, folder):
    fleet = Fleet(busy)
    log = pathlib.Path(folder) / "gateway.log"
    with open(log, "wb") as stream:
        gateway = subprocess.Popen(
            [program, f"--workers={addresses(workers, fleet.port)}", "--listen=127.0.0.1:0",
             "--http_listen=off", "--metrics_listen=127.0.0.1:0"], stderr=stream)
    limit = None
    try:
        deadline = time.monotonic() + 120
        while not (found := re.search(r'.*"message":"listening".*', log.read_text())):
            if gateway.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the gateway does not listen:\n{log.read_text()}")
            threading.Event().wait(0.05)  # polls another process; nothing to be notified by
        metrics_address = json.loads(found.group())["metrics_address"]
        while fleet.counts()["watches"] < workers and time.monotonic() < deadline:
            threading.Event().wait(0.1)
        threading.Event().wait(3)  # the burst of the beginning is not measured
        if cores:
            limit = CpuLimit(cores)
            limit.add(gateway.pid)
            threading.Event().wait(3)
        lines = log.read_text().count("\n")
        begin, cpu, counts = time.monotonic(), cpu_s(gateway.pid), fleet.counts()
        fleet_cpu = cpu_s(fleet.process.pid)
        ages = []
        while time.monotonic() - begin < seconds:
            threading.Event().wait(1)  # a sample a second
            ages.append(gauge(read_metrics(metrics_address), "continuo_gateway_load_age_seconds"))
        wall, cpu = time.monotonic() - begin, cpu_s(gateway.pid) - cpu
        after = fleet.counts()
        reports = after["reports"] - counts["reports"]
        metrics = read_metrics(metrics_address)
        log_lines = log.read_text().splitlines()[lines:]
        return {
            "workers": workers, "busy": busy, "limit_cores": cores,
            "gateway_cores": cpu / wall,
            "fleet_cores": (cpu_s(fleet.process.pid) - fleet_cpu) / wall,
            "reports_per_second": reports / wall,
            "us_per_report": 1e6 * cpu / max(reports, 1),
            "bytes_per_report": (after["bytes"] - counts["bytes"]) / max(reports, 1),
            "resident_mib": resident_mib(gateway.pid),
            "oldest_report_s": max(ages),
            "serving": int(gauge(metrics, "continuo_gateway_workers",
                                 'model="fake",state="serving"')),
            "false_silences": sum("worker silent" in line for line in log_lines),
            "false_losses": sum("worker lost" in line for line in log_lines),
        }
    finally:
        gateway.kill()
        gateway.wait()
        if limit:
            limit.close()
        fleet.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--gateway", action="append", metavar="NAME=PROGRAM",
                        help="default: continuo=build/release/bin/continuo-gateway")
    parser.add_argument("--workers", default="300,1000,3000", help="sizes of fleets")
    parser.add_argument("--loads", default="idle,busy", help="idle, busy or both")
    parser.add_argument("--limits", default="0,0.5", help="cores that the gateway may use; 0: all")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=pathlib.Path, default=ROOT / "build/bench/fleet.json")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    gateways = [g.split("=", 1) for g in args.gateway or
                [f"continuo={ROOT / 'build/release/bin/continuo-gateway'}"]]
    rows = []
    print("gateway    workers load limit | cores  reports/s us/report bytes  RSS MiB  oldest s "
          "serving silences losses")
    with tempfile.TemporaryDirectory() as folder:
        for workers in map(int, args.workers.split(",")):
            for load in args.loads.split(","):
                for cores in map(float, args.limits.split(",")):
                    runs = {name: [] for name, _ in gateways}
                    for _ in range(args.rounds):
                        for name, program in gateways:
                            runs[name].append(measure(program, workers, load == "busy", cores,
                                                      args.seconds, folder))
                    for name, _ in gateways:
                        row = {"gateway": name} | {
                            key: statistics.median(run[key] for run in runs[name])
                            for key in runs[name][0]}
                        for key in ("false_silences", "false_losses"):
                            row[key] = max(run[key] for run in runs[name])
                        rows.append(row)
                        print(f"{name:10} {workers:7} {load:4} {cores:5g} | "
                              f"{row['gateway_cores']:5.3f} {row['reports_per_second']:10.0f} "
                              f"{row['us_per_report']:9.1f} {row['bytes_per_report']:5.0f} "
                              f"{row['resident_mib']:8.0f} {row['oldest_report_s']:9.2f} "
                              f"{row['serving']:7} {row['false_silences']:8} "
                              f"{row['false_losses']:6}", flush=True)
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
