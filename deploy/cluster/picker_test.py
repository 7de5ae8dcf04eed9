#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the endpoint picker of the Gateway API's inference extension before two gateways, without a cluster: an API
server has the chart's InferencePool, the picker's account with the rights of its manifest, and pods that are told to be
where the gateways run. Needs what build.sh builds (etcd, kube-apiserver, kubectl, epp), and gateway and worker of a
build; a minute.

    deploy/cluster/picker_test.py [--config=config-1.4.yaml]
"""
import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import cluster
import endpoint_picker

for folder in ("e2e", "helm"):
    sys.path.insert(0, str(cluster.ROOT / "tests" / folder))
import chart  # noqa: E402
import crds  # noqa: E402
import fleet  # noqa: E402
import yaml  # noqa: E402

HTTP_PORT = 8080  # the pool's, so the gateways differ by address
HOSTS = ["127.0.0.2", "127.0.0.3"]
NAMESPACE = "continuo"
MANIFEST = cluster.HERE / "manifests/endpoint-picker.yaml"


class ApiServer:
    """etcd and an API server on loopback, without controllers or nodes."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.stack = stack
        etcd, peer, port = fleet.free_port(), fleet.free_port(), fleet.free_port()
        self.start("etcd", "--data-dir", folder / "etcd", "--unsafe-no-fsync",
                   f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
                   f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                   f"--initial-cluster=default=http://127.0.0.1:{peer}")
        subprocess.run(["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True)
        account = f"system:serviceaccount:{NAMESPACE}:endpoint-picker"
        (folder / "tokens.csv").write_text(f"test,test,1,system:masters\npicker,{account},2,system:serviceaccounts\n")
        self.start("kube-apiserver", f"--etcd-servers=http://127.0.0.1:{etcd}", f"--secure-port={port}",
                   "--bind-address=127.0.0.1", f"--cert-dir={folder}", f"--token-auth-file={folder / 'tokens.csv'}",
                   "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
                   "--service-account-issuer=https://test", f"--service-account-key-file={folder / 'accounts.key'}",
                   f"--service-account-signing-key-file={folder / 'accounts.key'}")
        self.url = f"https://127.0.0.1:{port}"
        self.config = self.config_of("test")
        cluster.wait_until(lambda: self.answers("get", "--raw", "/readyz"), 120, "the API server")

    def config_of(self, token):
        """A file by which clients speak to the server."""
        config = self.folder / f"config-{token}"
        config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": NAMESPACE}}]}))
        return config

    def start(self, name, *arguments, env=None):
        """Starts a program of the cluster, whose output goes to a file that is shown where the test fails."""
        log = open(self.folder / f"{name}.log", "w")
        process = subprocess.Popen([cluster.K8S_ROOT / "bin" / name, *arguments], stdin=subprocess.DEVNULL, stdout=log,
                                   stderr=log, env={**os.environ, **(env or {})})
        self.stack.callback(process.wait)
        self.stack.callback(process.kill)

    def kubectl(self, *arguments, text=None):
        done = subprocess.run([cluster.K8S_ROOT / "bin/kubectl", f"--kubeconfig={self.config}", *arguments],
                              input=text, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{arguments}: {done.stderr}")
        return done.stdout

    def answers(self, *arguments):
        with contextlib.suppress(RuntimeError):
            return self.kubectl(*arguments) or True

    def apply(self, *objects):
        for o in objects:
            self.kubectl("apply", "--server-side", "-f", "-", text=json.dumps(o))

    def set_pod(self, name, address, ready):
        """Tells of a pod what its kubelet would."""
        self.kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "--patch", json.dumps({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}}))


def test(folder, stack, config):
    rendered = chart.objects("--set=pools.demo.model.path=/m", "--set=inferencePool.enabled=true",
                             "--set=inferencePool.endpointPicker.name=endpoint-picker", release="continuo",
                             namespace=NAMESPACE)
    pool = next(o for o in rendered if o["kind"] == "InferencePool")
    labels = next(o for o in rendered if o["kind"] == "Deployment" and o["metadata"]["name"] == "continuo-gateway")[
        "spec"]["template"]["metadata"]["labels"]
    (folder / "config.yaml").write_text(next(
        o for o in rendered if o["metadata"]["name"] == "continuo-endpoint-picker")["data"][config])

    worker = fleet.start_worker(fleet.DEMO_MODEL, "--model_name=demo", "--threads=1")
    for host in HOSTS:
        gateway = fleet.Program("continuo-gateway", f"--workers={worker.address}", f"--listen={endpoint_picker.grpc_of(host + ':')}",
                                f"--http_listen={host}:{HTTP_PORT}", "--metrics_listen=127.0.0.1:0",
                                "--max_open_requests=8").wait_until_listening()
        fleet.Client(gateway.address).wait_for_model()

    server = ApiServer(folder, stack)
    definition = next(path for _, path in crds.files() if path.name.endswith("_inferencepools.yaml"))
    server.kubectl("apply", "--server-side", "-f", definition)
    server.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE, "labels": {"pod-security.kubernetes.io/warn": "restricted"}}})
    server.kubectl("apply", "-f", MANIFEST, "--validate=strict", "--warnings-as-errors")
    server.kubectl("wait", "--for=condition=Established", "crd/inferencepools.inference.networking.k8s.io")
    pods = {f"{host}:{HTTP_PORT}": f"gateway-{i}" for i, host in enumerate(HOSTS)}
    for address, name in pods.items():
        # With a node, which would have to confirm that it has ended.
        server.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
                      "spec": {"nodeName": "none", "containers": [{"name": "gateway", "image": "none"}]}})
        server.set_pod(name, address.rsplit(":", 1)[0], ready=True)
    server.apply(pool)

    port, metrics = fleet.free_port(), fleet.free_port()
    deployment = next(o for o in yaml.safe_load_all(MANIFEST.read_text()) if o["kind"] == "Deployment")
    arguments = [argument.replace("/config/", f"{folder}/")
                 for argument in deployment["spec"]["template"]["spec"]["containers"][0]["args"]]
    assert f"--pool-name={pool['metadata']['name']}" in arguments, arguments
    server.start("epp", *arguments, f"--grpc-port={port}", f"--metrics-port={metrics}",
                 f"--grpc-health-port={fleet.free_port()}", "--refresh-prometheus-metrics-interval=100ms",
                 env={"NAMESPACE": NAMESPACE, "KUBECONFIG": str(server.config_of("picker"))})
    picker = endpoint_picker.Picker(f"127.0.0.1:{port}")
    cluster.wait_until(lambda: cluster.answers(f"127.0.0.1:{metrics}"), 60, "the picker")
    ready = f'inference_pool_ready_pods{{name="{pool["metadata"]["name"]}"}}'
    cluster.wait_until(lambda: cluster.metrics(f"127.0.0.1:{metrics}").get(ready) == 2, 60, "both gateways in the pool")

    gateways = list(pods)
    endpoint_picker.check_choices(picker, gateways)

    # The picker's own metrics are what it has read.
    saturation = f'inference_pool_average_kv_cache_utilization{{name="{pool["metadata"]["name"]}"}}'
    with endpoint_picker.Held(gateways[0], 4):
        cluster.wait_until(lambda: cluster.metrics(f"127.0.0.1:{metrics}")[saturation] == 4 / 8 / 2, 10,
                           "the mean of the gateways' saturation")
        # A pod that is not ready, and one that ends.
        for without, again in (
                (lambda: server.set_pod(pods[gateways[1]], HOSTS[1], ready=False),
                 lambda: server.set_pod(pods[gateways[1]], HOSTS[1], ready=True)),
                (lambda: server.kubectl("delete", "pod", pods[gateways[1]], "--wait=false"), None)):
            assert set(picker.picks(5)) == {gateways[1]}, "the other one has streams"
            without()
            cluster.wait_until(lambda: set(picker.picks(5)) == {gateways[0]}, 10, "requests to leave it")
            assert set(picker.picks(20)) == {gateways[0]}
            if again:
                again()
                cluster.wait_until(lambda: set(picker.picks(5)) == {gateways[1]}, 10, "requests to come back")
    print("    none to a gateway that is not ready or ends, with streams at the other one", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default="config.yaml", help="which of the chart's configurations the picker gets")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        folder = pathlib.Path(folder)
        try:
            test(folder, stack, options.config)
        except BaseException:
            for log in sorted(folder.glob("*.log")):
                print(f"== {log.name}", *log.read_text().splitlines()[-20:], sep="\n", file=sys.stderr)
            raise


if __name__ == "__main__":
    main()
