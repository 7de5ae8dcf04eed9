// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/simulate_flags.h"

#include <vector>

#include "services/gateway/routing/policy.h"

namespace continuo::cli {

void AddSimulateFlags(common::Flags& flags, SimulateFlags* v) {
  flags.Integer(
      "workers", &v->workers, 0u, 100'000u,
      "Number of workers; with --autoscale, at the begin. The default is 1, or the minimum "
      "of --autoscale.");
  flags.Integer("gateways", &v->gateways, 1u, 10'000u,
                "Number of gateways. Each request comes to one of them at random.");
  flags.Text(
      "cost", &v->cost,
      "File that describes a worker: the cost of its steps and the size of its KV cache. The "
      "default is an example of a model of 8 billion parameters on one H100.");
  std::vector<std::string> policies;
  for (const gateway::NamedPolicy& policy : gateway::kPolicies) policies.emplace_back(policy.name);
  flags.Choice("routing_policy", &v->routing_policy, policies,
               "How the gateways pick a worker, as their flag of this name.");
  AddWorkloadFlags(flags, v);
  flags.Integer("concurrency", &v->concurrency, 1u, 1'000'000u,
                "Number of requests in flight at any time, in a closed loop.");
  flags.Integer("requests", &v->requests, uint64_t{1}, uint64_t{1} << 40,
                "Number of requests. The default is as many as start within --duration, or as the "
                "trace has, or 1000.");
  flags.Duration("duration", &v->duration, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "Simulated time after which no new requests start. Those in flight may end.");
  flags.Integer(
      "max_tokens", &v->max_tokens, 0u, 1u << 24,
      "The max_tokens that clients ask for. 0 is the length of the answer, as in a bench; "
      "more makes answers end by themselves.");
  flags.Duration("timeout", &v->timeout, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "Deadline of each request.");
  flags.Duration(
      "rolling_update", &v->rolling_update, absl::ZeroDuration(), absl::Hours(1),
      "Replace the workers meanwhile, one after the other: each takes nothing new, has half "
      "of this time for its streams, and is back after the other half. 0 is no update.");
  flags.Text(
      "autoscale", &v->autoscale,
      "MIN..MAX: scale the workers as the chart's autoscaler does, such as 2..16. A minimum of "
      "0 needs --autoscale_by=keda. Empty: the fleet keeps its size.");
  flags.Choice("autoscale_by", &v->autoscale_by, {"hpa", "keda"},
               "The autoscaler, as the chart's autoscaling.by.");
  flags.Number("kv_occupancy", &v->kv_occupancy, 0.01, 1,
               "Share of the KV cache in use that is aimed at, as the chart's "
               "autoscaling.kvOccupancy.");
  flags.Integer("queued_tokens", &v->queued_tokens, int64_t{1}, int64_t{1} << 40,
                "Waiting prompt tokens a worker that are aimed at, as the chart's "
                "autoscaling.queuedTokens.");
  flags.Number("token_time", &v->token_time, 0, 1,
               "Share of a worker's time that its tokens take, beyond what any step takes, that is "
               "aimed at, as the chart's autoscaling.tokenTime. 0 leaves the metric out.");
  flags.Duration("scale_down", &v->scale_down, absl::ZeroDuration(), absl::Hours(1),
                 "How long the load has to be lower before a worker is taken away, as the chart's "
                 "autoscaling.scaleDownSeconds.");
  flags.Duration("worker_start", &v->worker_start, absl::ZeroDuration(), absl::Hours(24),
                 "Time from the request for a worker until it serves: a node, an image, a model.");
  flags.Duration("drain_grace", &v->drain_grace, absl::ZeroDuration(), absl::Hours(1),
                 "Time that a worker that is taken away has for its streams, as its flag of this "
                 "name.");
  flags.Duration("network_delay", &v->network_delay, absl::ZeroDuration(), absl::Seconds(10),
                 "Time of a message between client and gateway, and between gateway and worker.");
  flags.Integer("subset_size", &v->subset_size, 0u, 1u << 20,
                "Workers of a large pool that each gateway watches, as its flag of this name.");
  flags.Integer("max_open_requests", &v->max_open_requests, int64_t{1}, int64_t{1} << 40,
                "Limit of each gateway, as its flag of this name.");
  flags.Integer("max_queued_tokens", &v->max_queued_tokens, int64_t{1}, int64_t{1} << 50,
                "Limit of each gateway, as its flag of this name.");
  flags.Text("slo", &v->slo,
             "What must hold, such as ttft_p99=2s,itl_p99=50ms,errors=0.1%. Without errors, no "
             "request may be rejected or fail.");
  flags.Choice("find", &v->find, {"none", "workers"},
               "Find the smallest number of workers, from --workers to --max_workers, that holds "
               "the SLO. With --autoscale, the smallest minimum, up to its maximum.");
  flags.Integer("max_workers", &v->max_workers, 1u, 100'000u,
                "The largest fleet that --find tries.");
  flags.Text(
      "svg", &v->svg,
      "File for a plot: of the fleets that --find has tried, or of the workers over time with "
      "--autoscale.");
  flags.Text(
      "json", &v->json,
      "File for the report in JSON. - prints it to the standard output instead of the table.");
  flags.Footer(
      "Scheduler, KV blocks, admission, routing and relays are those of the programs, on a virtual "
      "clock. Equal flags give equal results. Exit code: 0, 1 where a request failed, none "
      "succeeded "
      "or the SLO does not hold, 2 for bad usage, 130 when interrupted.");
}

}  // namespace continuo::cli
