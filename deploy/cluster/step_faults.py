# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: workers, gateways and nodes that are lost or taken away while streams are open."""
import time

import cluster
from cluster import kubectl, ready, wait_until
from loaded_fleet import LOST_S, STAYS_S, WORKERS

POOL_NAME = "continuo-worker-demo.continuo.svc.cluster.local"


def worker_killed_mid_stream(test):
    total = test.under_load(lambda: kill_busiest(test, "worker"), longest_gap=STAYS_S)
    assert total["migrations"] > 0, "no stream was at that worker"
    test.whole()


def gateway_killed_mid_stream(test):
    total = test.under_load(lambda: kill_busiest(test, "gateway"), most_reconnects=1, longest_gap=LOST_S,
                            longest_kept_gap=STAYS_S)
    assert total["reconnects"] > 0, "no stream was at that gateway"
    test.whole()


def kill_busiest(test, component):
    """The one with the most streams, once any has some."""
    port, gauge = {"gateway": (9091, "continuo_gateway_open_streams"),
                   "worker": (9090, "continuo_running_requests")}[component]

    def streams(pod):
        page = cluster.metrics(f"{pod['status']['podIP']}:{port}")
        return sum(value for series, value in page.items() if series.split("{")[0] == gauge)

    def busiest():
        number, pod = max(((streams(pod), pod) for pod in ready(component)), key=lambda at: at[0])
        return pod if number > 0 else None
    pod = wait_until(busiest, 30, f"a {component} with streams")
    begin = time.monotonic()
    kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    wait_until(lambda: not cluster.answers(f"{pod['status']['podIP']}:{port}"), 60,
               f"the end of the {component}'s process")
    print(f"    its process ended after {time.monotonic() - begin:.1f} s", flush=True)
    wait_until(lambda: len(ready(component)) == 2, 120, f"a new {component}")


def worker_added_takes_load(test):
    def add():
        before = wait_until(lambda: set(cluster.resolve(POOL_NAME)), 30, "the workers' names")
        kubectl("scale", WORKERS, "--replicas=3")
        new = wait_until(lambda: set(cluster.resolve(POOL_NAME)) - before, 60, "a new name").pop()
        appeared = time.monotonic()

        def has_served():
            try:
                page = cluster.metrics(f"{new}:9090")
            except OSError:
                return False
            return any(value > 0 for series, value in page.items()
                       if series.startswith("continuo_generated_tokens_total"))
        wait_until(has_served, 30, "a token from it")
        print(f"    the first token {time.monotonic() - appeared:.1f} s after its name", flush=True)
    test.under_load(add)


def worker_taken_away(test):
    def remove():
        kubectl("scale", WORKERS, "--replicas=2")
        wait_until(lambda: len(cluster.pods("worker")) == 2, 90, "its end")
    test.under_load(remove)
    test.whole()


def node_drained(test):
    assert "node2" in test.nodes_of("worker"), "nothing to drain there"

    def drain():
        cluster.run(cluster.K8S_ROOT / "bin/kubectl", "drain", "node2", "--ignore-daemonsets",
                    "--delete-emptydir-data", "--timeout=180s")
    try:
        with test.more_streams():
            total = test.under_load(drain, most_reconnects=1)
    finally:
        kubectl("uncordon", "node2")
    assert total["migrations"] > 0, "no stream was at a worker there"
    test.whole()
    _spread(test)


def _spread(test):
    """Pods on both nodes again."""
    for kind in ("gateway", "worker-demo"):
        kubectl("rollout", "restart", f"deployment/continuo-{kind}")
    for kind in ("gateway", "worker-demo"):
        kubectl("rollout", "status", f"deployment/continuo-{kind}", "--timeout=180s")
    test.whole()


def node_lost(test):
    nodes = test.nodes_of("worker") & test.nodes_of("gateway")
    assert "node2" in nodes, nodes

    def lose():
        cluster.run("ip", "link", "set", "kube-h2", "down")
        time.sleep(LOST_S + 5)
    try:
        total = test.under_load(lose, most_reconnects=1, longest_gap=LOST_S, longest_kept_gap=STAYS_S)
    finally:
        cluster.run("ip", "link", "set", "kube-h2", "up")
    assert total["migrations"] > 0, "no stream of the other node's gateway was at the lost worker"
    wait_until(lambda: kubectl("get", "node", "node2", "--no-headers").split()[1] == "Ready", 120,
               "node2")
    test.whole()
