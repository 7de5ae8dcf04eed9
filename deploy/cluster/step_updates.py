# SPDX-License-Identifier: Apache-2.0
"""Steps of cluster_test.py: other builds, other weights, downloads and canaries while streams are open."""
import json
import re
import sys

import cluster
from cluster import kubectl, ready, wait_until

sys.path.insert(0, str(cluster.ROOT / "tests/e2e"))
import fleet  # noqa: E402
from fleet import pb  # noqa: E402


def update_to_another_build(test):
    tag = test.tag + "-next"
    with test.more_streams():
        total = test.under_load(lambda: cluster.helm_upgrade(f"--set=image.tag={tag}"), most_reconnects=1)
    assert total["migrations"] > 0, "no stream was at a worker that was replaced"
    images = {c["image"] for p in cluster.pods() for c in p["spec"]["containers"]}
    assert all(image.endswith(":" + tag) for image in images), images


def update_to_other_weights(test):
    tag = test.tag + "-next"
    with test.more_streams():
        total = test.under_load(
            lambda: cluster.helm_upgrade(f"--set=image.tag={tag}", "--set=pools.demo.model.pvc.path=other"),
            most_reconnects=1, inexact=True)
        assert total["inexact"] > 0, "no stream was under way from the old to the new weights"
        # The other streams, neither an old answer nor inexact, are answers of the new weights.
        for load in test.loads:
            report = load.tell("references")
            assert report["different"] == 0, report
    cluster.helm_upgrade()
    for load in test.loads:
        load.tell("references")


def models_are_downloaded(test):
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
        with test.more_streams():
            total = test.under_load(lambda o=options: cluster.helm_upgrade(*o))
        assert total["migrations"] > 0, "no stream was at a worker that was replaced"
        for pod in ready("worker"):
            assert [c["name"] for c in pod["status"]["initContainerStatuses"]] == ["download"]
    cluster.helm_upgrade()
    test.whole()
    kubectl("delete", "-f", cluster.HERE / "manifests/model-sources.yaml")


def canary_is_seen_in_metrics(test):
    """A canary of other weights takes a tenth of the requests, and its series stand beside those of
    the stable pool at every gateway."""
    canary = {"model": {"name": "demo", "pvc": {"claim": "models", "path": "other"}}, "weight": 1,
              "replicas": 1, "resources": cluster.SMALL_WORKER}
    cluster.helm_upgrade("--set=pools.demo.weight=9", f"--set-json=pools.canary={json.dumps(canary)}")
    gateways = [cluster.at(pod, 9091) for pod in ready("gateway")]

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
    test.whole()
