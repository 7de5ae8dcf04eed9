# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: gateways and workers that scale, also from zero."""
import concurrent.futures
import contextlib
import json
import sys
import time

import cluster
import dry_run
from cluster import kubectl, ready, wait_until

sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import fleet  # noqa: E402
from externalscaler import externalscaler_pb2 as scaler_pb  # noqa: E402
from externalscaler import externalscaler_pb2_grpc as scaler_grpc  # noqa: E402
from fleet import grpc, pb  # noqa: E402


def zero_and_back_beside_a_second_model(test):
    """A second model's pool has no pod. A request for it waits at a gateway, which tells the
    autoscaler, and is answered by the pod that this one starts; the first model's streams notice
    nothing. The test plays KEDA, whose definitions alone are here: it follows the ScaledObject."""
    dry_run.put_definitions()
    second = {"model": {"name": "second", "pvc": {"claim": "models", "path": "demo"}},
              "resources": cluster.SMALL_WORKER,
              "autoscaling": {"enabled": True, "by": "keda", "minReplicas": 0, "maxReplicas": 1}}
    cluster.helm_upgrade(f"--set-json=pools.second={json.dumps(second)}")
    deployment = "deployment/continuo-worker-second"
    trigger = json.loads(kubectl("get", "scaledobject", "continuo-worker-second", "-o", "json"))[
        "spec"]["triggers"][-1]
    assert trigger["type"] == "external-push", trigger
    host, port = trigger["metadata"]["scalerAddress"].rsplit(":", 1)
    reference = scaler_pb.ScaledObjectRef(name="continuo-worker-second", namespace=cluster.NAMESPACE,
                                          scalerMetadata=trigger["metadata"])

    def scale(replicas):
        kubectl("scale", deployment, f"--replicas={replicas}")
        wait_until(lambda: len(pods_of("second")) == replicas, 120, f"{replicas} pods of it")

    def pods_of(pool):
        return [p for p in cluster.pods("worker") if p["metadata"]["labels"]["continuo/pool"] == pool]

    def listed(client):
        models = client.inference.ListModels(pb.ListModelsRequest(), timeout=10).models
        return {model.name: model.num_workers for model in models}

    def ask(client):
        request = pb.GenerateRequest(model="second", text="Mira lives in Oslo.",
                                     stopping=pb.Stopping(max_tokens=8, ignore_eos=True))
        return client.generate(request, timeout=120).ids[0]

    scale(0)
    # Gateways that begin while the pool is at zero know it all the same.
    kubectl("rollout", "restart", "deployment/continuo-gateway")
    kubectl("rollout", "status", "deployment/continuo-gateway", "--timeout=180s")
    wait_until(lambda: len(ready("gateway")) == 2 == len(cluster.pods("gateway")), 120, "two gateways")
    gateways = [pod["status"]["podIP"] for pod in ready("gateway")]
    addresses = wait_until(lambda: set(cluster.resolve(host.rstrip("."))), 30, "the scaler's name")
    assert set(gateways) <= addresses, (gateways, addresses)
    clients = [fleet.Client(f"{address}:50050") for address in gateways]
    for client in clients:
        wait_until(lambda c=client: listed(c).get("demo") == 2, 60, "the first model's workers")
        assert listed(client)["second"] == 0, listed(client)

    def wake():
        # KEDA's stream is at the one gateway, the client's request at the other one.
        with grpc.insecure_channel(f"{gateways[0]}:{port}") as channel, \
                concurrent.futures.ThreadPoolExecutor(1) as pool:
            stream = scaler_grpc.ExternalScalerStub(channel).StreamIsActive(reference, timeout=120)
            assert not next(stream).result
            begin = time.monotonic()
            answer = pool.submit(ask, clients[1])
            assert any(response.result for response in stream)
            print(f"    told after {time.monotonic() - begin:.2f} s", flush=True)
            kubectl("scale", deployment, "--replicas=1")
            assert len(answer.result()) == 8
            print(f"    answered after {time.monotonic() - begin:.1f} s", flush=True)
    with contextlib.ExitStack() as stack:
        # Where there are two models, requests name theirs.
        stack.callback(setattr, test, "loads", test.loads)
        test.loads = []
        for load in (cluster.load_in_pod, cluster.load_on_node):
            test.loads.append(load("--model=demo"))
            stack.callback(test.loads[-1].end)
        for _ in range(2):
            total = test.under_load(wake)
            assert total["reconnects"] == total["migrations"] == 0, total
            scale(0)
            wait_until(lambda: all(listed(c)["second"] == 0 for c in clients), 60, "nobody to serve it")
    cluster.helm_upgrade()
    test.whole()


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


def autoscaling_on_kv_occupancy(test):
    _scale_by(test, "--set=worker.autoscaling.queuedTokens=1000000")


def autoscaling_on_queued_tokens(test):
    _scale_by(test, "--set=worker.autoscaling.kvOccupancy=1")


def _scale_by(test, without_the_other):
    """There is one worker, two or more under load, and one again while a last stream is open.
   """
    cluster.helm_upgrade("-f", cluster.HERE / "values-autoscaling.yaml", without_the_other)
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
