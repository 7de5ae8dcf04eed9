# SPDX-License-Identifier: Apache-2.0
"""The fleet of cluster_test.py with streams open: what its steps use and leave whole."""
import contextlib
import json
import time

import cluster
from cluster import kubectl, ready, wait_until

WORKERS = "deployment/continuo-worker-demo"
# The longest gap of a stream whose gateway is lost without a word. The client notices by its pings, which
# come every 10 s and wait 2 s. Then half of its attempts to connect go to the gateway that is lost.
LOST_S = 20
# The longest gap of a stream whose gateway stays. The gateway takes a worker for lost after 2 s of silence,
# and another worker prefills the prompt and what was delivered. The rest is for a busy machine.
STAYS_S = 10


class LoadedFleet:
    """Streams from a pod and from a node, and what becomes of them. `tag` is that of the images."""

    def __init__(self, tag):
        self.tag = tag
        self.loads = [cluster.load_in_pod(), cluster.load_on_node()]

    def under_load(self, act, most_reconnects=0, inexact=False, longest_gap=None, longest_kept_gap=None):
        """Runs `act` while streams are open; returns what happened to them. A kept gap is one of a stream
        that never had to reconnect."""
        cluster.tell_all(self.loads, "start")
        begin = time.monotonic()
        act()
        seconds = time.monotonic() - begin
        cluster.tell_all(self.loads, "progress")
        reports = cluster.tell_all(self.loads, "stop")
        total = {key: sum(r[key] for r in reports.values()) for key in
                 ("streams", "tokens", "migrations", "reconnects", "inexact")}
        total["seconds"] = round(seconds, 1)
        for gap in ("longest_gap_s", "longest_kept_gap_s"):
            total[gap] = max(r[gap] for r in reports.values())
        print("   ", json.dumps(total), flush=True)
        for name, report in reports.items():
            for reason, count in report["refusals"].items():
                print(f"    {name}: {count} × {reason:.200}", flush=True)
        for name, report in reports.items():
            assert not report["errors"], f"{name}: {report['errors'][:3]}"
            assert report["most_reconnects"] <= most_reconnects, f"{name}: {report}"
            if not inexact:
                assert report["different"] == 0 and report["inexact"] == 0, f"{name}: {report}"
        if longest_gap:
            assert total["longest_gap_s"] < longest_gap, total
        if longest_kept_gap:
            assert total["longest_kept_gap_s"] < longest_kept_gap, total
        return total

    def nodes_of(self, component):
        return {p["spec"]["nodeName"] for p in ready(component)}

    def whole(self, workers=2, gateways=2):
        wait_until(lambda: len(ready("worker")) == workers == len(cluster.pods("worker")) and
                   len(ready("gateway")) == gateways == len(cluster.pods("gateway")), 180,
                   f"{workers} workers and {gateways} gateways")

    @contextlib.contextmanager
    def more_streams(self):
        """Opens so many streams that each takes longer than the second over which a worker migrates
        its streams."""
        more = cluster.load_on_node(streams=24, seed="more")
        self.loads.append(more)
        try:
            yield
        finally:
            self.loads.remove(more)
            more.end()

    def recover(self):
        """Makes the fleet whole after a step that failed."""
        for load in self.loads:
            load.process.kill()
        cluster.run("ip", "link", "set", "kube-h2", "up")
        wait_until(lambda: kubectl("get", "node", "node2", "--no-headers").split()[1].startswith(
            "Ready"), 120, "node2")
        kubectl("uncordon", "node2")
        cluster.helm_upgrade()
        kubectl("scale", WORKERS, "--replicas=2")
        self.whole()
        self.loads = [cluster.load_in_pod(), cluster.load_on_node()]
