// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/bench.h"

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/cli/bench/bench_report.h"
#include "services/cli/bench/load_generator.h"
#include "services/cli/bench/progress.h"
#include "services/cli/bench/report_json.h"
#include "services/cli/bench/workload.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::cli {
namespace {

// The plan of one run of the load generator.
struct Run {
  bool open = false;         // Requests start at their arrivals, otherwise as room becomes free.
  uint32_t concurrency = 1;  // Of a closed loop.
  uint64_t requests = 0;     // 0 is no limit.
  absl::Duration duration = absl::InfiniteDuration();
};

// Starts the requests of the workload until the run is complete, and waits for their ends. Returns
// the number of requests that were cut to the context.
uint64_t Drive(const Run& run, Workload& workload, LoadGenerator& load, Progress& progress) {
  constexpr auto kTick = std::chrono::milliseconds(100);
  const SteadyClock::time_point begin = SteadyClock::now();
  const bool timed = run.duration != absl::InfiniteDuration();
  const SteadyClock::time_point end =
      begin + (timed ? absl::ToChronoNanoseconds(run.duration) : std::chrono::hours(24 * 365));
  uint64_t cut = 0;
  for (uint64_t sent = 0; run.requests == 0 || sent < run.requests; ++sent) {
    const PlannedRequest request = workload.Next();
    const SteadyClock::time_point arrival = begin + absl::ToChronoNanoseconds(request.arrival);
    const auto due = [&] {
      return run.open ? SteadyClock::now() >= arrival : load.num_in_flight() < run.concurrency;
    };
    while (!due() && !load.cancelled() && SteadyClock::now() < end) {
      progress.Show(load);
      const SteadyClock::time_point tick = std::min(end, SteadyClock::now() + kTick);
      if (run.open) {
        load.WaitUntil(std::min(tick, arrival));
      } else {
        load.WaitForRoom(run.concurrency, tick);
      }
    }
    if (load.cancelled() || SteadyClock::now() >= end) break;
    cut += request.cut;
    load.Start(request);
  }
  while (load.num_in_flight() > 0) {
    progress.Show(load);
    // Returns at once after a cancel; the remaining calls then take moments.
    load.WaitForRoom(1, SteadyClock::now() + kTick);
  }
  return cut;
}

absl::StatusOr<v1::Model> GetModel(const BenchFlags& flags, v1::InferenceService::Stub* stub) {
  grpc::ClientContext context;
  AddMetadata(flags.connection, context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Seconds(10)));
  v1::GetModelRequest request;
  request.set_name(flags.model);
  v1::GetModelResponse response;
  RETURN_IF_ERROR(common::FromGrpcStatus(stub->GetModel(&context, request, &response)));
  if (response.model().vocabulary_size() == 0) {
    return absl::FailedPreconditionError("the server does not tell the vocabulary's size");
  }
  return response.model();
}

// The run that is measured.
Run MakeRun(const BenchFlags& flags, const std::vector<TraceRow>& trace) {
  const bool arrivals = flags.trace_arrivals && !trace.empty() && trace[0].arrival.has_value();
  Run run;
  run.open = flags.rate > 0 || arrivals;
  run.concurrency = flags.concurrency;
  run.duration = flags.duration;
  const bool timed = flags.duration != absl::InfiniteDuration();
  run.requests = flags.requests.value_or(timed ? 0 : trace.empty() ? 100 : trace.size());
  return run;
}

absl::Status Print(const BenchFlags& flags, const BenchReport& report, const v1::Model& model,
                   bool open, const Console& console) {
  if (!flags.json.empty()) {
    nlohmann::ordered_json json = ReportJson(report);
    json["config"] = ConfigJson(flags, model.name(), open);
    if (flags.json == "-") {
      console.out << json.dump(2) << std::endl;
      return absl::OkStatus();
    }
    std::ofstream file(flags.json);
    file << json.dump(2) << std::endl;
    if (!file.good()) {
      return absl::UnavailableError(absl::StrCat("cannot write \"", flags.json, "\""));
    }
  }
  console.out << FormatReport(report) << std::flush;
  return absl::OkStatus();
}

absl::StatusOr<int> Bench(const BenchFlags& flags, Interrupt& interrupt, const Console& console) {
  ASSIGN_OR_RETURN(WorkloadOptions options, MakeWorkloadOptions(flags));
  const Run run = MakeRun(flags, options.trace);
  BenchFlags one_connection = flags;
  one_connection.connections = 1;
  LoadGenerator probe(one_connection, nullptr);
  RETURN_IF_ERROR(probe.Connect());
  ASSIGN_OR_RETURN(const v1::Model model, GetModel(flags, probe.stub(0)));
  options.vocabulary_size = model.vocabulary_size();
  options.max_context_tokens = model.max_context_tokens();

  const auto drive = [&](const Run& with, Workload& workload, LoadGenerator& load) {
    const Interrupt::Scope scope(&interrupt, [&] { load.Cancel(); });
    Progress progress(console, with.requests, with.duration);
    return Drive(with, workload, load, progress);
  };
  if (flags.warmup > 0) {
    WorkloadOptions other = options;
    other.seed = ~options.seed;  // The measured prompts must not be in the prefix cache.
    Workload workload(other);
    LoadGenerator load(flags, &workload);
    RETURN_IF_ERROR(load.Connect());
    drive({.concurrency = flags.concurrency, .requests = flags.warmup}, workload, load);
    if (load.cancelled()) return 130;
  }

  Workload workload(options);
  LoadGenerator load(flags, &workload);
  RETURN_IF_ERROR(load.Connect());
  const SteadyClock::time_point begin = SteadyClock::now();
  const uint64_t cut = drive(run, workload, load);
  BenchReport report = MakeReport(load.TakeRecords(), SecondsBetween(begin, SteadyClock::now()));
  report.cut = cut;
  if (!run.open) report.steady = load.steady();
  RETURN_IF_ERROR(Print(flags, report, model, run.open, console));
  if (load.cancelled()) return 130;
  return report.failed == 0 && report.ok > 0 ? 0 : 1;
}

}  // namespace

int RunBench(const BenchFlags& flags, Interrupt& interrupt, const Console& console) {
  const absl::StatusOr<int> code = Bench(flags, interrupt, console);
  if (code.ok()) return *code;
  console.err << "continuo bench: " << DescribeError(code.status()) << std::endl;
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace continuo::cli
