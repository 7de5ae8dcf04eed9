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
import sys
import time
import traceback

import cluster
import step_faults
import step_install
import step_picker
import step_scaling
import step_trust
import step_updates
from loaded_fleet import LoadedFleet

STEPS = [
    step_trust.api_server_takes_every_example,
    step_trust.stream_through_service_and_node_port,
    step_install.helm_test_asks_the_model,
    step_install.installed_from_an_oci_registry,
    step_trust.security_contexts_hold,
    step_trust.monitoring_sees_every_target,
    step_faults.worker_killed_mid_stream,
    step_faults.gateway_killed_mid_stream,
    step_faults.worker_added_takes_load,
    step_faults.worker_taken_away,
    step_faults.workers_found_by_the_api_server,
    step_updates.update_to_another_build,
    step_updates.update_to_other_weights,
    step_faults.node_drained,
    step_faults.node_lost,
    step_trust.tls_and_keys,
    step_updates.models_are_downloaded,
    step_scaling.zero_and_back_beside_a_second_model,
    step_updates.canary_is_seen_in_metrics,
    step_picker.endpoint_picker_chooses_gateways,
    step_scaling.gateways_scale_on_cpu,
    step_scaling.autoscaling_on_kv_occupancy,
    step_scaling.autoscaling_on_queued_tokens,
    step_scaling.autoscaling_on_token_time,
]
# What addresses matter to, on a cluster of IPv6 alone.
IPV6_STEPS = [
    step_trust.api_server_takes_every_example,
    step_trust.stream_through_service_and_node_port,
    step_faults.worker_killed_mid_stream,
    step_faults.gateway_killed_mid_stream,
    step_faults.worker_added_takes_load,
    step_faults.worker_taken_away,
    step_faults.workers_found_by_the_api_server,
]
NAMES = {step.__name__: step for step in STEPS}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tag", required=True, help="of the images; those of the other build are TAG-next")
    parser.add_argument("--only", default=",".join(
        step.__name__ for step in (STEPS if cluster.FAMILY == "ipv4" else IPV6_STEPS)))
    options = parser.parse_args()
    test = LoadedFleet(options.tag)
    results = {}
    for step in options.only.split(","):
        print(f"== {step}", flush=True)
        begin = time.monotonic()
        try:
            NAMES[step](test)
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
