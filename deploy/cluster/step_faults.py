# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: workers, gateways and nodes that are lost or taken away while streams are open."""
import contextlib
import json
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
        page = cluster.metrics(cluster.at(pod, port))
        return sum(value for series, value in page.items() if series.split("{")[0] == gauge)

    def busiest():
        number, pod = max(((streams(pod), pod) for pod in ready(component)), key=lambda at: at[0])
        return pod if number > 0 else None
    pod = wait_until(busiest, 30, f"a {component} with streams")
    begin = time.monotonic()
    kubectl("delete", "pod", pod["metadata"]["name"], "--grace-period=0", "--force")
    wait_until(lambda: not cluster.answers(cluster.at(pod, port)), 60,
               f"the end of the {component}'s process")
    print(f"    its process ended after {time.monotonic() - begin:.1f} s", flush=True)
    wait_until(lambda: len(ready(component)) == 2, 120, f"a new {component}")


def worker_added_takes_load(test):
    def add():
        before = wait_until(lambda: set(cluster.resolve(POOL_NAME)), 30, "the workers' names")
        kubectl("scale", WORKERS, "--replicas=3")
        new = wait_until(lambda: set(cluster.resolve(POOL_NAME)) - before, 60, "a new name").pop()
        appeared = time.monotonic()
        _wait_for_tokens(new)
        print(f"    the first token {time.monotonic() - appeared:.1f} s after its name", flush=True)
    test.under_load(add)


def _wait_for_tokens(address):
    """Until a worker that is new has made some."""
    def has_served():
        try:
            page = cluster.metrics(cluster.at({"status": {"podIP": address}}, 9090))
        except OSError:
            return False
        return any(value > 0 for series, value in page.items()
                   if series.startswith("continuo_generated_tokens_total"))
    wait_until(has_served, 30, "a token from it")


def worker_taken_away(test):
    test.under_load(_remove)
    test.whole()


def _remove():
    kubectl("scale", WORKERS, "--replicas=2")
    wait_until(lambda: len(cluster.pods("worker")) == 2, 90, "its end")


def workers_found_by_the_api_server(test):
    """With gateway.discovery=kubernetes gateways follow the pool's EndpointSlices, which is all that they
    may read. DNS answers nothing meanwhile."""
    cluster.helm_upgrade("--set=gateway.discovery=kubernetes")
    account = f"--as=system:serviceaccount:{cluster.NAMESPACE}:continuo"
    assert _may(account, "list", "endpointslices.discovery.k8s.io")
    assert _may(account, "watch", "endpointslices.discovery.k8s.io")
    for verb, what in (("list", "pods"), ("get", "secrets"), ("update", "endpointslices.discovery.k8s.io")):
        assert not _may(account, verb, what), (verb, what)

    def listed():
        slices = json.loads(kubectl("get", "endpointslices", "-o", "json", "-l",
                                    "kubernetes.io/service-name=continuo-worker-demo"))["items"]
        return {a for s in slices for e in s["endpoints"] or [] for a in e["addresses"]}

    def known():
        """How many workers each gateway knows."""
        return [sum(value for series, value in cluster.metrics(cluster.at(pod, 9091)).items()
                    if series.startswith("continuo_gateway_workers{")) for pod in ready("gateway")]

    def add():
        before = listed()
        kubectl("scale", WORKERS, "--replicas=3")
        new = wait_until(lambda: listed() - before, 60, "a new endpoint").pop()
        appeared = time.monotonic()
        wait_until(lambda: known() == [3, 3], 30, "it at both gateways")
        print(f"    known to all gateways {time.monotonic() - appeared:.1f} s after its endpoint", flush=True)
        _wait_for_tokens(new)
        print(f"    the first token {time.monotonic() - appeared:.1f} s after its endpoint", flush=True)
    with _without_dns():
        total = test.under_load(lambda: kill_busiest(test, "worker"), longest_gap=STAYS_S)
        assert total["migrations"] > 0, "no stream was at that worker"
        test.whole()
        test.under_load(add)
        test.under_load(_remove)
        wait_until(lambda: known() == [2, 2], 30, "its end at both gateways")
    cluster.helm_upgrade()
    test.whole()


def _may(*question):
    """What the API server says to `kubectl auth can-i`, which fails where it says no."""
    try:
        return kubectl("auth", "can-i", *question).strip() == "yes"
    except RuntimeError as error:
        assert str(error).split()[-1] == "no", error
        return False


@contextlib.contextmanager
def _without_dns():
    """CoreDNS is stopped meanwhile."""
    def scale(replicas):
        cluster.run(cluster.K8S_ROOT / "bin/kubectl", "-n", "kube-system", "scale", "deployment/coredns",
                    f"--replicas={replicas}")
    scale(0)
    try:
        wait_until(lambda: not cluster.resolve(POOL_NAME), 60, "the end of DNS")
        yield
    finally:
        scale(1)
        wait_until(lambda: cluster.resolve(POOL_NAME), 60, "DNS")


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
