# SPDX-License-Identifier: Apache-2.0
"""Step of cluster_test.py: an endpoint picker in front of the gateways."""
import cluster
import dry_run
import endpoint_picker
from cluster import kubectl, ready, wait_until

PICKER = cluster.HERE / "manifests/endpoint-picker.yaml"
METRICS = 'inference_pool_average_kv_cache_utilization{name="continuo-gateway"}'


def addresses():
    """Of the gateways' OpenAI API: {address: pod's name}."""
    return {f"{pod['status']['podIP']}:8080": pod["metadata"]["name"] for pod in ready("gateway")}


def endpoint_picker_chooses_gateways(test):
    """The endpoint picker of the Gateway API's inference extension, with the chart's pool and configuration. The test
    plays the proxy: it asks the picker, and sends the request to the gateway that it names."""
    dry_run.put_definitions()
    cluster.run(cluster.HERE / "scratch_image.sh", "localhost/epp:1", cluster.K8S_ROOT / "bin/epp")
    cluster.helm_upgrade("--set=inferencePool.enabled=true", "--set=inferencePool.endpointPicker.name=endpoint-picker",
                         "--set=gateway.flags.max_open_requests=8")
    test.whole()
    kubectl("apply", "-f", PICKER)
    kubectl("rollout", "status", "deployment/endpoint-picker", "--timeout=90s")
    address = kubectl("get", "pod", "-l", "app=endpoint-picker", "-o", "jsonpath={.items[0].status.podIP}")
    picker = endpoint_picker.Picker(f"{address}:9002")
    gateways = addresses()
    assert len(gateways) == 2, gateways
    endpoint_picker.check_choices(picker, list(gateways))

    ends, stays = gateways
    with endpoint_picker.Held(stays, 4), endpoint_picker.Held(ends, 2):
        wait_until(lambda: cluster.metrics(f"{address}:9090").get(METRICS) == (4 + 2) / 8 / 2, 30,
                   "what the picker has read of both gateways")
        assert set(picker.picks(20)) == {ends}, "the other one has more streams"
        kubectl("delete", "pod", gateways[ends], "--wait=false")
        wait_until(lambda: ends not in picker.picks(5), 10, "requests to leave the gateway that ends")
        after = picker.picks(20)
        assert ends not in after, after
        # It drains all the while.
        assert endpoint_picker.streams_at(ends) == 2
        wait_until(lambda: set(picker.picks(5)) == set(addresses()) - {stays}, 60, "requests to come to its successor")
    print(f"    a gateway that drains: {dict(after)}, then its successor", flush=True)
    kubectl("delete", "-f", PICKER)
    cluster.helm_upgrade()
    test.whole()
