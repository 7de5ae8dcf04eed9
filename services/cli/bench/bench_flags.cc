// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench_flags.h"

namespace continuo::cli {

void AddBenchFlags(common::Flags& flags, BenchFlags* v) {
  AddConnectionFlags(flags, &v->connection);
  flags.Text("model", &v->model, "Name of the model. It may be left out where one is served.");
  flags.Integer("concurrency", &v->concurrency, 1u, 100'000u,
                "Number of requests in flight at any time, in a closed loop.");
  flags.Integer("requests", &v->requests, uint64_t{1}, uint64_t{1} << 40,
                "Number of requests. The default is as many as start within --duration, or as the "
                "trace has, or 100.");
  flags.Duration("duration", &v->duration, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "Time after which no new requests start. Those in flight may end.");
  flags.Integer("warmup", &v->warmup, 0u, 1'000'000u,
                "Number of requests before the measurement, which are not counted.");
  AddWorkloadFlags(flags, v);
  flags.Switch("trace_arrivals", &v->trace_arrivals,
               "Send requests at the arrivals of the trace. --rate takes precedence.");
  flags.Number("temperature", &v->temperature, 0, 100,
               "Temperature of the sampling. 0 takes the most likely token.");
  flags.Switch("ignore_eos", &v->ignore_eos,
               "Generate the whole length, past the end of sequence.");
  flags.Switch("bypass_cache", &v->bypass_cache, "Neither use nor fill the prefix cache.");
  flags.Integer("connections", &v->connections, 1u, 1000u,
                "Number of TCP connections that share the load.");
  flags.Duration("timeout", &v->timeout, absl::Milliseconds(1), absl::InfiniteDuration(),
                 "Deadline of each request.");
  flags.Text(
      "json", &v->json,
      "File for the report in JSON. - prints it to the standard output instead of the table.");
  flags.Footer(
      "Prompts are random token ids of the model's vocabulary, made from the seed. The time "
      "between tokens is the gap between responses, divided among the tokens that came together. A "
      "request that ends with RESOURCE_EXHAUSTED counts as rejected. Exit code: 0, 1 where a "
      "request failed or none succeeded, 2 for bad usage, 130 when interrupted.");
}

}  // namespace continuo::cli
