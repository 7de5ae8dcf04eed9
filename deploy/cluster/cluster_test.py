#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the chart on a real cluster while streams are open: updates, losses, scaling. test.sh
brings the cluster, the images and the model; the steps below go in this order, each leaving the
fleet whole. `--only=NAME,…` runs some of them.

A step's streams come from a pod through the gateways' Service and from a node's network through its
NodePort. Every answer must be byte for byte the undisturbed one, no client sees an error; where a
gateway ends, one continuation goes on at another one.
"""
import argparse
import concurrent.futures
import contextlib
import json
import re
import secrets
import sys
import time
import traceback

import cluster
import dry_run
from cluster import kubectl, ready, wait_until

sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import certificates  # noqa: E402
import fleet  # noqa: E402
from externalscaler import externalscaler_pb2 as scaler_pb  # noqa: E402
from externalscaler import externalscaler_pb2_grpc as scaler_grpc  # noqa: E402
from fleet import grpc, pb  # noqa: E402

WORKERS = "deployment/continuo-worker-demo"
POOL_NAME = "continuo-worker-demo.continuo.svc.cluster.local"
# The longest gap of a stream whose gateway is lost without a word. The client notices by its pings, which
# come every 10 s and wait 2 s. Then half of its attempts to connect go to the gateway that is lost.
LOST_S = 20
# The longest gap of a stream whose gateway stays. The gateway takes a worker for lost after 2 s of silence,
# and another worker prefills the prompt and what was delivered. The rest is for a busy machine.
STAYS_S = 10


class Test:
    def __init__(self):
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
    def _more_streams(self):
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

    # The steps.

    def api_server_takes_every_example(self):
        dry_run.main()

    def stream_through_service_and_node_port(self):
        total = self.under_load(lambda: time.sleep(5))
        assert total["reconnects"] == total["migrations"] == 0, total

    def security_contexts_hold(self):
        for component in ("gateway", "worker"):
            pod = ready(component)[0]["metadata"]["name"]
            name = f"look-{time.monotonic_ns()}"
            kubectl("debug", pod, f"--container={name}", "--image=localhost/continuo-test-client:1",
                    "--image-pull-policy=Never", f"--target={component}", "--profile=restricted", "-q",
                    "--", "/venv/bin/python", "-c", LOOK)

            def told(pod=pod, name=name):
                try:
                    return kubectl("logs", pod, "-c", name).strip()
                except RuntimeError:  # not begun yet
                    return ""
            seen = json.loads(wait_until(told, 60, "what it sees").splitlines()[-1])
            print("   ", component, seen, flush=True)
            assert seen == {"uid": 65532, "capabilities": 0, "no_new_privileges": 1, "seccomp": 2,
                            "root_file_system": "read-only", "service_account_token": False}, seen

    def monitoring_sees_every_target(self):
        def up():
            page = kubectl("get", "--raw", "/api/v1/namespaces/monitoring/services/prometheus:9090/"
                           "proxy/api/v1/targets?state=active")
            return {t["labels"]["pod"]: t["health"] for t in json.loads(page)["data"]["activeTargets"]}
        expected = {p["metadata"]["name"]: "up" for p in cluster.pods()}
        wait_until(lambda: expected.items() <= up().items(), 60, f"targets {expected}")
        print(f"    {len(expected)} targets up", flush=True)

    def worker_killed_mid_stream(self):
        total = self.under_load(lambda: self._kill("worker"), longest_gap=STAYS_S)
        assert total["migrations"] > 0, "no stream was at that worker"
        self.whole()

    def gateway_killed_mid_stream(self):
        total = self.under_load(lambda: self._kill("gateway"), most_reconnects=1, longest_gap=LOST_S,
                                longest_kept_gap=STAYS_S)
        assert total["reconnects"] > 0, "no stream was at that gateway"
        self.whole()

    def _kill(self, component):
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

    def worker_added_takes_load(self):
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
        self.under_load(add)

    def worker_taken_away(self):
        def remove():
            kubectl("scale", WORKERS, "--replicas=2")
            wait_until(lambda: len(cluster.pods("worker")) == 2, 90, "its end")
        self.under_load(remove)
        self.whole()

    def node_drained(self):
        assert "node2" in self.nodes_of("worker"), "nothing to drain there"

        def drain():
            cluster.run(cluster.K8S_ROOT / "bin/kubectl", "drain", "node2", "--ignore-daemonsets",
                        "--delete-emptydir-data", "--timeout=180s")
        try:
            with self._more_streams():
                total = self.under_load(drain, most_reconnects=1)
        finally:
            kubectl("uncordon", "node2")
        assert total["migrations"] > 0, "no stream was at a worker there"
        self.whole()
        self._spread()

    def _spread(self):
        """Pods on both nodes again."""
        for kind in ("gateway", "worker-demo"):
            kubectl("rollout", "restart", f"deployment/continuo-{kind}")
        for kind in ("gateway", "worker-demo"):
            kubectl("rollout", "status", f"deployment/continuo-{kind}", "--timeout=180s")
        self.whole()

    def node_lost(self):
        nodes = self.nodes_of("worker") & self.nodes_of("gateway")
        assert "node2" in nodes, nodes

        def lose():
            cluster.run("ip", "link", "set", "kube-h2", "down")
            time.sleep(LOST_S + 5)
        try:
            total = self.under_load(lose, most_reconnects=1, longest_gap=LOST_S, longest_kept_gap=STAYS_S)
        finally:
            cluster.run("ip", "link", "set", "kube-h2", "up")
        assert total["migrations"] > 0, "no stream of the other node's gateway was at the lost worker"
        wait_until(lambda: kubectl("get", "node", "node2", "--no-headers").split()[1] == "Ready", 120,
                   "node2")
        self.whole()

    def update_to_another_build(self):
        tag = self.tag + "-next"
        with self._more_streams():
            total = self.under_load(lambda: cluster.helm_upgrade(f"--set=image.tag={tag}"), most_reconnects=1)
        assert total["migrations"] > 0, "no stream was at a worker that was replaced"
        images = {c["image"] for p in cluster.pods() for c in p["spec"]["containers"]}
        assert all(image.endswith(":" + tag) for image in images), images

    def update_to_other_weights(self):
        tag = self.tag + "-next"
        with self._more_streams():
            total = self.under_load(
                lambda: cluster.helm_upgrade(f"--set=image.tag={tag}", "--set=pools.demo.model.pvc.path=other"),
                most_reconnects=1, inexact=True)
            assert total["inexact"] > 0, "no stream was under way from the old to the new weights"
            # The other streams, neither an old answer nor inexact, are answers of the new weights.
            for load in self.loads:
                report = load.tell("references")
                assert report["different"] == 0, report
        cluster.helm_upgrade()
        for load in self.loads:
            load.tell("references")

    def tls_and_keys(self):
        """TLS on every hop and keys, from Secrets that are renewed while streams are open."""
        authority = certificates.Authority()
        keys = {tenant: secrets.token_hex(16) for tenant in ("alice", "bob", "carol", "dave")}
        ok, unauthenticated, unavailable = (grpc.StatusCode.OK, grpc.StatusCode.UNAUTHENTICATED,
                                            grpc.StatusCode.UNAVAILABLE)

        def issue(serial):
            for name in ("clients-tls", "workers-tls", "gateways-tls"):
                certificate, key = authority.issue(name, serial)
                cluster.put_secret(name, {"tls.crt": certificate.read_text(), "tls.key": key.read_text(),
                                          "ca.crt": authority.ca.read_text()})

        def put_keys(*tenants):
            cluster.put_secret("keys", {"keys": "".join(f"{t} {keys[t]}\n" for t in tenants)})

        def address(pod, port):
            return f"{pod['status']['podIP']}:{port}"

        def code(client, tenant=None):
            metadata = [("authorization", f"Bearer {keys[tenant]}")] if tenant else []
            try:
                client.inference.ListModels(pb.ListModelsRequest(), timeout=10, metadata=metadata)
            except grpc.RpcError as error:
                return error.code()
            return ok

        issue(1)
        put_keys("alice", "bob", "carol")
        cluster.helm_upgrade(
            "--set=tls.enabled=true", "--set=tls.clients.secretName=clients-tls",
            "--set=tls.workers.secretName=workers-tls", "--set=tls.workers.gatewaySecretName=gateways-tls",
            f"--set=tls.workers.serverName={certificates.NAME}", "--set=apiKeys.secretName=keys")
        clients = [certificates.client(address(pod, 50050), authority) for pod in ready("gateway")]
        for pod, client in zip(ready("gateway"), clients):
            assert code(fleet.Client(address(pod, 50050))) == unavailable, "in the clear"
            assert [code(client, t) for t in ("carol", None, "dave")] == [ok, unauthenticated, unauthenticated]
            assert cluster.https_code(address(pod, 8080), authority.ca) == 401
            assert cluster.https_code(address(pod, 8080), authority.ca, keys["carol"]) == 200
        shown = authority.files("gateways-tls")
        for pod in ready("worker"):  # takes who shows a certificate
            assert code(certificates.client(address(pod, 50051), authority)) == unavailable
            assert code(certificates.client(address(pod, 50051), authority, shown)) == ok

        def renew():
            issue(20)
            put_keys("alice", "bob", "dave")
            for component, port in (("gateway", 50050), ("worker", 50051)):
                for pod in ready(component):
                    wait_until(lambda a=address(pod, port): certificates.served_serial(
                        a, authority, shown) == 20, 180, f"the new certificate of {component}s")
            for client in clients:
                wait_until(lambda c=client: [code(c, t) for t in ("dave", "carol")] == [ok, unauthenticated],
                           180, "the new keys")
            self._kill("worker")

        def options(tenant):
            return (f"--authority={authority.ca.read_text()}", f"--server_name={certificates.NAME}",
                    f"--key={keys[tenant]}")
        with contextlib.ExitStack() as stack:
            stack.callback(setattr, self, "loads", self.loads)
            self.loads = []
            for load in (cluster.load_in_pod, cluster.load_on_node):
                self.loads.append(load(*options("alice" if load is cluster.load_in_pod else "bob")))
                stack.callback(self.loads[-1].end)
            total = self.under_load(renew, longest_gap=STAYS_S)
            assert total["migrations"] > 0, "no stream was at that worker"
            served = {(series.split('tenant="')[1].split('"')[0])
                      for pod in ready("gateway")
                      for series, value in cluster.metrics(address(pod, 9091)).items()
                      if series.startswith("continuo_gateway_tenant_tokens") and value > 0}
            assert served == {"alice", "bob"}, served
        cluster.helm_upgrade()
        self.whole()

    def models_are_downloaded(self):
        """The init containers download the same model from a hub and from an object store: streams
        go on exactly."""
        kubectl("apply", "-f", cluster.HERE / "manifests/model-sources.yaml")
        kubectl("wait", "--for=condition=Ready", "pod/model-sources", "--timeout=60s")
        cluster.put_secret("hub-token", {"token": "hub-token"})  # what manifests/model-sources.yaml asks for
        cluster.put_secret("object-store", {
            "RCLONE_S3_PROVIDER": "Other", "RCLONE_S3_ENDPOINT": "http://model-sources:9000",
            "RCLONE_S3_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"})
        image = "localhost/continuo-test-client:1"
        for model, *options in (
                ({"hub": {"repository": "demo/model", "tokenSecret": {"name": "hub-token"}}},
                 "--set=download.hubEndpoint=http://model-sources:8000", f"--set=download.hubImage={image}"),
                ({"objectStore": {"uri": "s3://models/demo", "secretName": "object-store"}},
                 f"--set=download.objectStoreImage={image}")):
            options.append(f"--set-json=pools.demo.model={json.dumps(model)}")  # in place of the claim
            with self._more_streams():
                total = self.under_load(lambda o=options: cluster.helm_upgrade(*o))
            assert total["migrations"] > 0, "no stream was at a worker that was replaced"
            for pod in ready("worker"):
                assert [c["name"] for c in pod["status"]["initContainerStatuses"]] == ["download"]
        cluster.helm_upgrade()
        self.whole()
        kubectl("delete", "-f", cluster.HERE / "manifests/model-sources.yaml")

    def zero_and_back_beside_a_second_model(self):
        """A second model's pool has no pod. A request for it waits at a gateway, which tells the
        autoscaler, and is answered by the pod that this one starts; the first model's streams notice
        nothing. The test plays KEDA, whose definitions alone are here: it follows the ScaledObject."""
        dry_run.put_definitions()
        second = {"model": {"name": "second", "pvc": {"claim": "models", "path": "demo"}},
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
            stack.callback(setattr, self, "loads", self.loads)
            self.loads = []
            for load in (cluster.load_in_pod, cluster.load_on_node):
                self.loads.append(load("--model=demo"))
                stack.callback(self.loads[-1].end)
            for _ in range(2):
                total = self.under_load(wake)
                assert total["reconnects"] == total["migrations"] == 0, total
                scale(0)
                wait_until(lambda: all(listed(c)["second"] == 0 for c in clients), 60, "nobody to serve it")
        cluster.helm_upgrade()
        self.whole()

    def canary_is_seen_in_metrics(self):
        """A canary of other weights takes a tenth of the requests, and its series stand beside those of
        the stable pool at every gateway."""
        canary = {"model": {"name": "demo", "pvc": {"claim": "models", "path": "other"}}, "weight": 1,
                  "replicas": 1}
        cluster.helm_upgrade("--set=pools.demo.weight=9", f"--set-json=pools.canary={json.dumps(canary)}")
        gateways = [f"{pod['status']['podIP']}:9091" for pod in ready("gateway")]

        def by_pool(name, **labels):
            result = {}
            for address in gateways:
                for series, value in cluster.metrics(address).items():
                    of = dict(re.findall(r'(\w+)="([^"]*)"', series))
                    if series.split("{")[0] == name and labels.items() <= of.items():
                        result[of["pool"]] = result.get(of["pool"], 0) + value
            return result

        def fingerprints(pool):
            return {re.search('fingerprint="([^"]*)"', series).group(1)
                    for address in gateways for series, value in cluster.metrics(address).items()
                    if series.startswith("continuo_gateway_fingerprint_workers") and f'pool="{pool}"' in series}

        def sees_both():
            serving = by_pool("continuo_gateway_workers", state="serving")
            return serving.get("demo") == 2 * len(gateways) and serving.get("canary") == len(gateways)
        wait_until(sees_both, 60, "both pools at all gateways")
        ok = by_pool("continuo_gateway_requests_total", code="OK")

        def served():
            now = by_pool("continuo_gateway_requests_total", code="OK")
            return {pool: now.get(pool, 0) - ok.get(pool, 0) for pool in ("demo", "canary")}
        # Answers of other weights differ, and only their metrics matter here.
        clients = [fleet.Client(address.replace(":9091", ":50050")) for address in gateways]
        for i in range(200):
            clients[i % len(clients)].generate(pb.GenerateRequest(
                model="demo", text=f"Mira lives in Oslo. {i}", stopping=pb.Stopping(max_tokens=2)))
        counted = wait_until(lambda: sum(served().values()) == 200 and served(), 30, "all requests counted")
        print("   ", counted, flush=True)
        # The expectation is 20, sigma 4.2.
        assert 3 <= counted["canary"] <= 45, counted
        for histogram in ("request", "queue", "time_to_first_token"):
            counts = by_pool(f"continuo_gateway_{histogram}_seconds_count")
            assert min(counts["demo"], counts["canary"]) > 0, (histogram, counts)
        assert len(fingerprints("demo")) == len(fingerprints("canary")) == 1
        assert fingerprints("demo") != fingerprints("canary")
        cluster.helm_upgrade()
        self.whole()

    def gateways_scale_on_cpu(self):
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
        total = self.under_load(up)
        print(f"    up after {total['seconds']} s: {rest} % at rest, {seen[-1]} % under load", flush=True)
        cluster.helm_upgrade()
        self.whole()

    def autoscaling_on_kv_occupancy(self):
        self._scale_by("--set=worker.autoscaling.queuedTokens=1000000")

    def autoscaling_on_queued_tokens(self):
        self._scale_by("--set=worker.autoscaling.kvOccupancy=1")

    def _scale_by(self, without_the_other):
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
        total = self.under_load(up)
        print(f"    up after {total['seconds']} s", flush=True)
        loads, self.loads = self.loads, [last]
        try:
            assert len(cluster.pods("worker")) > 1, "they are gone already"
            total = self.under_load(down)
            print(f"    down after {total['seconds']} s", flush=True)
        finally:
            self.loads.pop().end()
            self.loads = loads
        cluster.helm_upgrade()
        self.whole()


# Runs beside the program, in its process namespace, as its user.
LOOK = """
import errno, json, os
status = dict(l.rstrip("\\n").split(":", 1) for l in open("/proc/1/status"))
try:
    open("/proc/1/root/written", "w").close()
    root = "writable"
except OSError as error:
    root = "read-only" if error.errno == errno.EROFS else str(error)
print(json.dumps({
    "uid": int(status["Uid"].split()[0]), "capabilities": int(status["CapBnd"], 16),
    "no_new_privileges": int(status["NoNewPrivs"]), "seccomp": int(status["Seccomp"]),
    "root_file_system": root,
    "service_account_token": os.path.exists("/proc/1/root/var/run/secrets/kubernetes.io")}))
"""

STEPS = ["api_server_takes_every_example", "stream_through_service_and_node_port",
         "security_contexts_hold",
         "monitoring_sees_every_target", "worker_killed_mid_stream", "gateway_killed_mid_stream",
         "worker_added_takes_load", "worker_taken_away", "update_to_another_build",
         "update_to_other_weights", "node_drained", "node_lost", "tls_and_keys",
         "models_are_downloaded", "zero_and_back_beside_a_second_model",
         "canary_is_seen_in_metrics",
         "gateways_scale_on_cpu", "autoscaling_on_kv_occupancy", "autoscaling_on_queued_tokens"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tag", required=True, help="of the images; those of the other build are TAG-next")
    parser.add_argument("--only", default=",".join(STEPS))
    options = parser.parse_args()
    test = Test()
    test.tag = options.tag
    results = {}
    for step in options.only.split(","):
        print(f"== {step}", flush=True)
        begin = time.monotonic()
        try:
            getattr(test, step)()
            results[step] = "passed"
        except Exception:  # told; the next step starts from a fleet made whole
            traceback.print_exc()
            results[step] = "FAILED"
            test.recover()
        print(f"   {results[step]} after {time.monotonic() - begin:.0f} s", flush=True)
    failed = [step for step, result in results.items() if result != "passed"]
    print(f"{len(results) - len(failed)} passed, {len(failed)} failed", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
