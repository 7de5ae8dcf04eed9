# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: the release out of an OCI registry, and `helm test` on it."""
import json
import pathlib
import sys
import tempfile

import cluster
from cluster import kubectl, ready, wait_until
from loaded_fleet import STAYS_S, WORKERS
from step_faults import kill_busiest

sys.path.insert(0, str(cluster.ROOT / "tests/helm"))
import registry  # noqa: E402


def installed_from_an_oci_registry(test):
    """The chart goes into a registry, and the release is taken away and installed from there by digest."""
    with tempfile.TemporaryDirectory() as folder:
        server = registry.Registry(folder)
        try:
            _install_from(server, pathlib.Path(folder))
        finally:
            server.stop()
    test.whole()
    total = test.under_load(lambda: kill_busiest(test, "worker"), longest_gap=STAYS_S)
    assert total["migrations"] > 0, "no stream was at that worker"
    test.whole()


def _install_from(server, folder):
    options = ("--repository-cache", folder / "cache", "--registry-config", folder / "registry.json")
    package = pathlib.Path(cluster.helm("package", cluster.ROOT / "helm/continuo", "--destination",
                                        folder).rpartition(" ")[2].strip())
    cluster.helm("push", package, f"oci://{server.address}/charts", "--plain-http", *options)
    _, digest = server.manifest("charts/continuo", package.stem.removeprefix("continuo-"))
    chart = f"oci://{server.address}/charts/continuo"

    def install(at):
        return cluster.helm("install", cluster.RELEASE, f"{chart}@{at}", "--plain-http", *options,
                            "-f", cluster.HERE / "values.yaml", *cluster.OPTIONS, "--wait", "--timeout=300s")
    cluster.helm("uninstall", cluster.RELEASE, "--wait", "--timeout=180s")
    wait_until(lambda: not cluster.pods(), 180, "the old release's pods to end")
    try:
        other = digest[:-1] + ("0" if digest[-1] != "0" else "1")
        try:
            install(other)
            raise AssertionError(f"{other} is in the registry")
        except RuntimeError as error:
            assert "not found" in str(error), error
        install(digest)
    except BaseException:
        cluster.helm_upgrade()
        raise
    release = json.loads(cluster.helm("get", "metadata", cluster.RELEASE, "--output=json"))
    assert (release["revision"], release["chart"]) == (1, "continuo"), release
    print(f"    {chart.partition('/charts')[2]} {release['version']} at {digest}", flush=True)


def helm_test_asks_the_model(test):
    """`helm test` passes where the model answers, and fails where no worker is left to."""
    cluster.helm_upgrade("--set=test.image=localhost/continuo-test-client:1", "--set=test.timeoutSeconds=10")

    def served():
        return sum(value for pod in ready("gateway")
                   for series, value in cluster.metrics(cluster.at(pod, 9091)).items()
                   if series.startswith("continuo_gateway_requests_total") and 'code="OK"' in series)

    def ask():
        return cluster.helm("test", cluster.RELEASE, "--timeout=90s")
    before = served()
    told = ask()
    assert "Phase:          Succeeded" in told, told
    assert served() == before + 1, "the test's request is not among the gateways'"
    kubectl("scale", WORKERS, "--replicas=0")
    try:
        wait_until(lambda: not cluster.pods("worker"), 120, "the end of all workers")
        try:
            told = ask()
            raise AssertionError(f"passed without a worker: {told}")
        except RuntimeError as error:
            assert "continuo-test failed" in str(error), error
            # What the pod has said, though it is gone.
            assert "asking" in str(error), error
            print(f"    without a worker: {str(error).strip().splitlines()[-1]}", flush=True)
        wait_until(lambda: not kubectl("get", "pods", "--output=name",
                                       "--selector=app.kubernetes.io/component=test").strip(), 60,
                   "the end of the failed test's pod")
    finally:
        kubectl("scale", WORKERS, "--replicas=2")
    cluster.helm_upgrade()
    test.whole()
