# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: examples, security contexts, monitoring, TLS and keys."""
import base64
import contextlib
import json
import secrets
import sys
import time

import cluster
import dry_run
from cluster import kubectl, ready, wait_until
from loaded_fleet import STAYS_S
from step_faults import kill_busiest

sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import certificates  # noqa: E402
import fleet  # noqa: E402
from fleet import grpc, pb  # noqa: E402


def api_server_takes_every_example(test):
    dry_run.main()


def stream_through_service_and_node_port(test):
    total = test.under_load(lambda: time.sleep(5))
    assert total["reconnects"] == total["migrations"] == 0, total


def security_contexts_hold(test):
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


def monitoring_sees_every_target(test):
    def up():
        page = kubectl("get", "--raw", "/api/v1/namespaces/monitoring/services/prometheus:9090/"
                       "proxy/api/v1/targets?state=active")
        return {t["labels"]["pod"]: t["health"] for t in json.loads(page)["data"]["activeTargets"]}
    expected = {p["metadata"]["name"]: "up" for p in cluster.pods()}
    wait_until(lambda: expected.items() <= up().items(), 60, f"targets {expected}")
    print(f"    {len(expected)} targets up", flush=True)


def tls_and_keys(test):
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

    def code(client, tenant=None, token=None):
        metadata = [("authorization", f"Bearer {keys[tenant]}")] if tenant else []
        metadata += [("x-continuo-token", token)] if token else []
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
    clients = [certificates.client(cluster.at(pod, 50050), authority) for pod in ready("gateway")]
    for pod, client in zip(ready("gateway"), clients):
        assert code(fleet.Client(cluster.at(pod, 50050))) == unavailable, "in the clear"
        assert [code(client, t) for t in ("carol", None, "dave")] == [ok, unauthenticated, unauthenticated]
        assert cluster.https_code(cluster.at(pod, 8080), authority.ca) == 401
        assert cluster.https_code(cluster.at(pod, 8080), authority.ca, keys["carol"]) == 200
    shown = authority.files("gateways-tls")
    secret = json.loads(kubectl("get", "secret", f"{cluster.RELEASE}-token", "-o", "json"))
    token = base64.b64decode(secret["data"]["token"]).decode()
    for pod in ready("worker"):  # takes who shows a certificate and the token
        assert code(certificates.client(cluster.at(pod, 50051), authority), token=token) == unavailable
        assert code(certificates.client(cluster.at(pod, 50051), authority, shown)) == unauthenticated
        assert code(certificates.client(cluster.at(pod, 50051), authority, shown), token=token) == ok

    def renew():
        issue(20)
        put_keys("alice", "bob", "dave")
        for component, port in (("gateway", 50050), ("worker", 50051)):
            for pod in ready(component):
                wait_until(lambda a=cluster.at(pod, port): certificates.served_serial(
                    a, authority, shown) == 20, 180, f"the new certificate of {component}s")
        for client in clients:
            wait_until(lambda c=client: [code(c, t) for t in ("dave", "carol")] == [ok, unauthenticated],
                       180, "the new keys")
        kill_busiest(test, "worker")

    def options(tenant):
        return (f"--authority={authority.ca.read_text()}", f"--server_name={certificates.NAME}",
                f"--key={keys[tenant]}")
    with contextlib.ExitStack() as stack:
        stack.callback(setattr, test, "loads", test.loads)
        test.loads = []
        for load in (cluster.load_in_pod, cluster.load_on_node):
            test.loads.append(load(*options("alice" if load is cluster.load_in_pod else "bob")))
            stack.callback(test.loads[-1].end)
        total = test.under_load(renew, longest_gap=STAYS_S)
        assert total["migrations"] > 0, "no stream was at that worker"
        served = {(series.split('tenant="')[1].split('"')[0])
                  for pod in ready("gateway")
                  for series, value in cluster.metrics(cluster.at(pod, 9091)).items()
                  if series.startswith("continuo_gateway_tenant_tokens") and value > 0}
        assert served == {"alice", "bob"}, served
    cluster.helm_upgrade()
    test.whole()


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
