# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: gateways and workers that scale, also from zero."""
import concurrent.futures
import contextlib
import datetime
import json
import sys
import time

import cluster
from cluster import kubectl, ready, wait_until

sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402


# KEDA asks its triggers every POLL_S. It counts COOLDOWN_S from when it last found the model active, and
# LOAD_S + COOLDOWN_S from when it first saw a new pool.
POLL_S, COOLDOWN_S, LOAD_S = 30, 45, 20
BUSY_S = 10  # for a busy machine


def zero_and_back_beside_a_second_model(test):
    """KEDA takes a second model's idle pool to zero. A request for it waits at a gateway, which tells KEDA,
    and is answered by the pod that KEDA starts; the first model's streams notice nothing."""
    second = {"model": {"name": "second", "pvc": {"claim": "models", "path": "demo"}},
              "resources": cluster.SMALL_WORKER, "loadSeconds": LOAD_S,
              "autoscaling": {"enabled": True, "by": "keda", "minReplicas": 0, "maxReplicas": 1,
                              "scaleDownSeconds": COOLDOWN_S}}
    cluster.helm_upgrade(f"--set-json=pools.second={json.dumps(second)}",
                         "--set=monitoring.prometheusAddress=http://prometheus.monitoring:9090")
    pool = ScaledPool("second")
    new = wait_until(lambda: pool.replicas() == 0 and pool.age_s(), LOAD_S + COOLDOWN_S + POLL_S + BUSY_S,
                     "zero without a request")
    print(f"    a new pool at zero after {new:.0f} s", flush=True)
    assert new > LOAD_S + COOLDOWN_S, "it had less than its time to load"
    wait_until(lambda: not pool.pods(), 60, "the end of its pod")
    # Gateways that begin while the pool is at zero know it all the same.
    kubectl("rollout", "restart", "deployment/continuo-gateway")
    kubectl("rollout", "status", "deployment/continuo-gateway", "--timeout=180s")
    wait_until(lambda: len(ready("gateway")) == 2 == len(cluster.pods("gateway")), 120, "two gateways")
    # KEDA asks the one of them, so a request at the other one comes to it through both.
    clients = [fleet.Client(cluster.at(pod, 50050)) for pod in ready("gateway")]
    for client in clients:
        wait_until(lambda c=client: listed(c).get("demo") == 2, 60, "the first model's workers")
        assert listed(client)["second"] == 0, listed(client)

    def wake(client, within):
        begin = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(1) as thread:
            answer = thread.submit(ask, client)
            wait_until(lambda: pool.replicas() == 1, within, "KEDA to start a pod")
            print(f"    KEDA acted after {time.monotonic() - begin:.1f} s", flush=True)
            assert len(answer.result()) == 8
            print(f"    answered after {time.monotonic() - begin:.1f} s", flush=True)

    def stay():
        """A model that is asked for is not taken away."""
        begin = time.monotonic()
        while time.monotonic() - begin < COOLDOWN_S + POLL_S:
            ask(clients[0])
            assert pool.replicas() == 1, "taken away while it is asked for"
            time.sleep(1)
        wait_until(pool.has_metrics, BUSY_S, "metrics of KEDA at the pool's HPA")

    def fall():
        begin = time.monotonic()
        wait_until(lambda: pool.replicas() == 0, COOLDOWN_S + POLL_S + BUSY_S, "zero again")
        seconds = time.monotonic() - begin
        print(f"    at zero {seconds:.0f} s after the last request", flush=True)
        assert seconds > COOLDOWN_S - POLL_S - 1, "no cooldown"
        wait_until(lambda: all(listed(c)["second"] == 0 for c in clients), 60, "nobody to serve it")

    def first():
        wake(clients[0], 2 * POLL_S)  # KEDA's stream may have to come back after the old gateways' end
        stay()
        fall()

    def other():
        wake(clients[1], BUSY_S)
        fall()
    with contextlib.ExitStack() as stack:
        # Where there are two models, requests name theirs.
        stack.callback(setattr, test, "loads", test.loads)
        test.loads = []
        for load in (cluster.load_in_pod, cluster.load_on_node):
            test.loads.append(load("--model=demo"))
            stack.callback(test.loads[-1].end)
        for act in (first, other):
            total = test.under_load(act)
            assert total["reconnects"] == total["migrations"] == 0, total
    cluster.helm_upgrade()
    test.whole()


class ScaledPool:
    """What KEDA has made of a pool."""

    def __init__(self, name):
        self.name, self.object = name, f"continuo-worker-{name}"

    def _get(self, kind, name):
        return json.loads(kubectl("get", kind, name, "-o", "json"))

    def replicas(self):
        return self._get("deployment", self.object)["spec"]["replicas"]

    def pods(self):
        return [p for p in cluster.pods("worker") if p["metadata"]["labels"]["continuo/pool"] == self.name]

    def age_s(self):
        created = self._get("scaledobject", self.object)["metadata"]["creationTimestamp"]
        return time.time() - datetime.datetime.fromisoformat(created).timestamp()

    def has_metrics(self):
        """The HPA of KEDA's has a value for every trigger, from KEDA's metrics server."""
        hpa = self._get("hpa", f"keda-hpa-{self.object}")
        values = [m["external"]["current"] for m in hpa["status"].get("currentMetrics") or [] if m["type"] == "External"]
        return len(values) == len(hpa["spec"]["metrics"]) and all("averageValue" in v for v in values)


def listed(client):
    models = client.inference.ListModels(pb.ListModelsRequest(), timeout=10).models
    return {model.name: model.num_workers for model in models}


def ask(client):
    request = pb.GenerateRequest(model="second", text="Mira lives in Oslo.",
                                 stopping=pb.Stopping(max_tokens=8, ignore_eos=True))
    return client.generate(request, timeout=120).ids[0]


def gateways_scale_on_cpu(test):
    """There are two gateways at rest, and three under load."""
    cluster.helm_upgrade(
        "--set=gateway.autoscaling.enabled=true", "--set=gateway.autoscaling.maxReplicas=3",
        "--set=gateway.autoscaling.cpuUtilization=50", "--set=gateway.resources.requests.cpu=20m")

    def used():
        """Mean of the gateways' CPU, in percent of what they request; None where it is not known yet."""
        hpa = json.loads(kubectl("get", "hpa", "continuo-gateway", "-o", "json"))
        metrics = hpa["status"].get("currentMetrics") or [{}]
        return metrics[0].get("resource", {}).get("current", {}).get("averageUtilization")

    def at_rest():
        seen.append(used())
        return seen[-1] is not None and seen[-1] < 50

    def up():
        wait_until(lambda: len(ready("gateway")) == 3, 120, "a third gateway")
        seen.append(used())
    seen = []
    wait_until(at_rest, 120, "the gateways' CPU at rest")
    rest = seen[-1]
    assert len(cluster.pods("gateway")) == 2, "they scale without load"
    total = test.under_load(up)
    print(f"    up after {total['seconds']} s: {rest} % at rest, {seen[-1]} % under load", flush=True)
    cluster.helm_upgrade()
    test.whole()


# No load reaches these targets.
WITHOUT = {"kvOccupancy": 1, "queuedTokens": 1_000_000, "tokenTime": 0}


def autoscaling_on_kv_occupancy(test):
    _scale_by(test, "kvOccupancy")


def autoscaling_on_queued_tokens(test):
    _scale_by(test, "queuedTokens")


def autoscaling_on_token_time(test):
    _scale_by(test, "tokenTime")


def _scale_by(test, metric):
    """There is one worker, two or more under load, and one again while a last stream is open."""
    cluster.helm_upgrade("-f", cluster.HERE / "values-autoscaling.yaml",
                         *(f"--set=worker.autoscaling.{other}={value}" for other, value in WITHOUT.items()
                           if other != metric))
    wait_until(lambda: len(ready("worker")) == 1 == len(cluster.pods("worker")), 240, "one worker")

    def up():
        wait_until(lambda: len(ready("worker")) >= 2, 120, "a second worker")
        print("   ", kubectl("get", "hpa", "--no-headers").strip(), flush=True)

    def down():
        wait_until(lambda: len(cluster.pods("worker")) == 1, 240, "one worker")
    last = cluster.load_on_node(streams=1)
    total = test.under_load(up)
    print(f"    up after {total['seconds']} s", flush=True)
    loads, test.loads = test.loads, [last]
    try:
        assert len(cluster.pods("worker")) > 1, "they are gone already"
        total = test.under_load(down)
        print(f"    down after {total['seconds']} s", flush=True)
    finally:
        test.loads.pop().end()
        test.loads = loads
    cluster.helm_upgrade()
    test.whole()
