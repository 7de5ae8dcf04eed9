#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the API server accepts the chart with each example's values, also for operators that
are not installed: their definitions are put into the cluster, and every object is sent as a dry
run, with unknown fields refused and a warning, as of Pod Security, taken for an error.

    build/venv/bin/python deploy/cluster/dry_run.py
"""
import json
import sys
import tempfile

import cluster

sys.path.insert(0, str(cluster.ROOT / "tests/helm"))
import chart  # noqa: E402
import crds  # noqa: E402

NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "examples", "labels": {
    "pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}}}


def apply(objects, *options):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": objects}, file)
        file.flush()
        cluster.run(cluster.K8S_ROOT / "bin/kubectl", "apply", "-f", file.name, *options)


def has_image_volume(o):
    """Kubernetes takes these with a feature gate only."""
    return o["kind"] == "Deployment" and any(
        "image" in volume for volume in o["spec"]["template"]["spec"].get("volumes", []))


def for_this_cluster(o):
    """The object as a cluster of one family of addresses takes it, which is what network.sh makes."""
    spec, family = o.get("spec", {}), {"ipv4": "IPv4", "ipv6": "IPv6"}[cluster.FAMILY]
    if o["kind"] == "Service" and spec.get("ipFamilies", [family]) != [family]:
        spec["ipFamilies"], spec["ipFamilyPolicy"] = [family], "SingleStack"
    return o


def put_definitions():
    """The operators' definitions, without the operators."""
    for _, path in crds.files():
        cluster.run(cluster.K8S_ROOT / "bin/kubectl", "apply", "--server-side", "-f", path)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")


def main():
    put_definitions()
    apply([NAMESPACE])
    for example in chart.EXAMPLES:
        objects = [for_this_cluster(o) for o in chart.objects("-f", example, namespace="examples")
                   if not has_image_volume(o)]
        # A pod's account has to exist, and a dry run makes none.
        names = {o["spec"].get("serviceAccountName", "default") for o in objects if o["kind"] == "Pod"} - {"default"}
        if names:
            apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "examples"}}
                   for name in sorted(names)])
        apply(objects, "--dry-run=server", "--validate=strict", "--warnings-as-errors")
        print(f"    {example.name}: {len(objects)} objects", flush=True)


if __name__ == "__main__":
    main()
