// SPDX-License-Identifier: Apache-2.0
#include "services/cli/simulate/simulate.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "services/base/status_macros.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/terminal.h"
#include "services/cli/simulate/fleet_search.h"
#include "services/cli/simulate/results_table.h"
#include "services/cli/simulate/scaling_report.h"
#include "services/cli/simulate/slo.h"
#include "services/cli/simulate/workload_load.h"
#include "services/gateway/routing/policy.h"
#include "services/simulate/simulation.h"
#include "services/simulate/worker/answer.h"
#include "services/worker/profile/worker_profile.h"

namespace continuo::cli {
namespace {

absl::StatusOr<profile::WorkerProfile> LoadProfile(const std::string& path) {
  if (path.empty()) return profile::ExampleProfile();
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || file.bad()) {
    return absl::NotFoundError(absl::StrCat("cannot read the cost \"", path, "\""));
  }
  auto profile = profile::ParseProfile(text);
  if (profile.ok()) return profile;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", profile.status().message()));
}

// The progress bar of a simulation, on a terminal only; it is erased at the end.
class SimulationProgress {
 public:
  SimulationProgress(const Console& console, uint64_t requests, absl::Duration duration)
      : console_(console), requests_(requests), duration_(duration) {}
  ~SimulationProgress() {
    if (shown_) console_.err << "\r\x1b[K" << std::flush;
  }
  SimulationProgress(const SimulationProgress&) = delete;
  SimulationProgress& operator=(const SimulationProgress&) = delete;

  void Show(const simulate::Results& so_far) {
    const auto now = std::chrono::steady_clock::now();
    if (!console_.err_terminal || now < next_) return;
    next_ = now + std::chrono::milliseconds(100);
    shown_ = true;
    const uint64_t ended = so_far.ok + so_far.rejected + so_far.failed;
    double done = requests_ > 0 ? static_cast<double>(ended) / static_cast<double>(requests_) : 0;
    if (duration_ != absl::InfiniteDuration()) {
      done = std::max(done, absl::FDivDuration(so_far.duration, duration_));
    }
    console_.err << "\r\x1b[K" << ProgressBar(done, 30) << "  " << so_far.workers << " workers, "
                 << FormatSeconds(absl::ToDoubleSeconds(so_far.duration)) << " simulated, " << ended
                 << " requests ended" << std::flush;
  }

 private:
  const Console& console_;
  const uint64_t requests_;
  const absl::Duration duration_;
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
  bool shown_ = false;
};

// Everything that simulations of one command line share.
struct Scenario {
  simulate::SimulationOptions options;
  absl::Duration rolling_update;
  WorkloadOptions workload;
  uint64_t requests = 0;  // 0 is no limit
  absl::Duration duration;
};

// The autoscaler of the flags; nothing without one.
absl::StatusOr<std::optional<simulate::AutoscalerOptions>> MakeAutoscaler(
    const SimulateFlags& flags) {
  if (flags.autoscale.empty()) {
    const SimulateFlags defaults;
    for (const auto& [name, is_given] :
         {std::pair("autoscale_by", flags.autoscale_by != defaults.autoscale_by),
          std::pair("kv_occupancy", flags.kv_occupancy != defaults.kv_occupancy),
          std::pair("queued_tokens", flags.queued_tokens != defaults.queued_tokens),
          std::pair("token_time", flags.token_time != defaults.token_time),
          std::pair("scale_down", flags.scale_down != defaults.scale_down),
          std::pair("worker_start", flags.worker_start != defaults.worker_start),
          std::pair("drain_grace", flags.drain_grace != defaults.drain_grace)}) {
      if (is_given) {
        return absl::InvalidArgumentError(absl::StrCat("--", name, " needs --autoscale"));
      }
    }
    return std::nullopt;
  }
  simulate::AutoscalerOptions options;
  const std::vector<std::string> bounds = absl::StrSplit(flags.autoscale, "..");
  if (bounds.size() != 2 || !absl::SimpleAtoi(bounds[0], &options.min_replicas) ||
      !absl::SimpleAtoi(bounds[1], &options.max_replicas) || options.min_replicas < 0 ||
      options.max_replicas < std::max(1, options.min_replicas) || options.max_replicas > 100'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--autoscale=", flags.autoscale, ": MIN..MAX such as 2..16, at most 100000"));
  }
  using By = simulate::AutoscalerOptions::By;
  options.by = flags.autoscale_by == "keda" ? By::kKeda : By::kHpa;
  if (options.min_replicas == 0 && options.by != By::kKeda) {
    return absl::InvalidArgumentError("a minimum of 0 needs --autoscale_by=keda");
  }
  options.kv_occupancy = flags.kv_occupancy;
  options.queued_tokens = flags.queued_tokens;
  options.token_time = flags.token_time;
  options.scale_down = flags.scale_down;
  options.pods = {.start = flags.worker_start, .drain_grace = flags.drain_grace};
  return options;
}

absl::StatusOr<Scenario> MakeScenario(const SimulateFlags& flags) {
  Scenario scenario;
  ASSIGN_OR_RETURN(scenario.workload, MakeWorkloadOptions(flags));
  ASSIGN_OR_RETURN(scenario.options.profile, LoadProfile(flags.cost));
  profile::WorkerProfile& profile = scenario.options.profile;
  const int64_t capacity = int64_t{profile.engine.num_blocks} * profile.engine.block_size;
  profile.max_context_tokens =
      static_cast<int>(std::min<int64_t>(profile.max_context_tokens, capacity));
  scenario.workload.vocabulary_size = simulate::kVocabularySize;
  scenario.workload.max_context_tokens = static_cast<uint32_t>(profile.max_context_tokens);
  const std::vector<TraceRow>& trace = scenario.workload.trace;
  const bool is_open = flags.rate > 0 || (!trace.empty() && trace[0].arrival.has_value());
  const bool timed = flags.duration != absl::InfiniteDuration();
  scenario.requests = flags.requests.value_or(timed ? 0 : trace.empty() ? 1000 : trace.size());
  scenario.duration = flags.duration;
  simulate::SimulationOptions& options = scenario.options;
  ASSIGN_OR_RETURN(options.autoscaler, MakeAutoscaler(flags));
  const int least = options.autoscaler.has_value() ? options.autoscaler->min_replicas : 1;
  const int most = options.autoscaler.has_value() ? options.autoscaler->max_replicas : 100'000;
  options.workers = flags.workers.has_value() ? static_cast<int>(*flags.workers) : least;
  if (options.workers < least || options.workers > most) {
    return absl::InvalidArgumentError(absl::StrCat("--workers=", options.workers,
                                                   options.autoscaler.has_value()
                                                       ? " is not within --autoscale"
                                                       : " is no fleet without --autoscale"));
  }
  // The chart's rule (continuo.coldStartSeconds).
  options.gateway.relay.retry.cold_start_wait =
      std::max(options.gateway.relay.retry.cold_start_wait, flags.worker_start + absl::Minutes(10));
  options.gateways = static_cast<int>(flags.gateways);
  options.gateway.policy = gateway::FindPolicy(flags.routing_policy);
  options.gateway.admission.max_open_requests = flags.max_open_requests;
  options.gateway.admission.max_queued_tokens = flags.max_queued_tokens;
  options.gateway.subset_size = flags.subset_size;
  options.network_delay = flags.network_delay;
  options.concurrency = is_open ? 0 : static_cast<int>(flags.concurrency);
  options.max_tokens = static_cast<int>(flags.max_tokens);
  options.timeout = flags.timeout;
  options.seed = flags.seed;
  scenario.rolling_update = flags.rolling_update;
  if (!is_open && timed && !flags.requests.has_value()) {
    return absl::InvalidArgumentError(
        "--duration ends an open loop: it needs --rate, a --trace with arrivals, or --requests");
  }
  return scenario;
}

absl::StatusOr<simulate::Results> Simulate(const Scenario& scenario, Interrupt& interrupt,
                                           const Console& console) {
  WorkloadLoad load(scenario.workload, scenario.requests, scenario.duration);
  simulate::SimulationOptions options = scenario.options;
  if (scenario.rolling_update > absl::ZeroDuration()) {
    const int places =
        options.autoscaler.has_value() ? options.autoscaler->max_replicas : options.workers;
    for (int i = 0; i < places; ++i) {
      options.faults.push_back({.kind = simulate::Fault::Kind::kDrain,
                                .at = i * scenario.rolling_update,
                                .worker = i,
                                .lasts = scenario.rolling_update});
    }
  }
  simulate::Simulation simulation(options, &load);
  std::atomic<bool> interrupted = false;
  const Interrupt::Scope scope(&interrupt, [&] { interrupted = true; });
  SimulationProgress progress(console, scenario.requests, scenario.duration);
  return simulation.Run([&](const simulate::Results& so_far) {
    progress.Show(so_far);
    return !interrupted;
  });
}

absl::Status WriteFile(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good() ? absl::OkStatus()
                     : absl::UnavailableError(absl::StrCat("cannot write \"", path, "\""));
}

// Prints the report where --json says, and the table unless that is the standard output.
absl::Status Print(const SimulateFlags& flags, const nlohmann::ordered_json& json,
                   const std::string& table, const Console& console) {
  if (flags.json == "-") {
    console.out << json.dump(2) << std::endl;
    return absl::OkStatus();
  }
  if (!flags.json.empty()) RETURN_IF_ERROR(WriteFile(flags.json, json.dump(2) + "\n"));
  console.out << table << std::flush;
  return absl::OkStatus();
}

absl::StatusOr<int> Find(const SimulateFlags& flags, const Slo& slo, Scenario scenario,
                         Interrupt& interrupt, const Console& console) {
  std::optional<simulate::AutoscalerOptions>& autoscaler = scenario.options.autoscaler;
  int most = static_cast<int>(flags.max_workers);
  if (autoscaler.has_value()) most = std::min(most, autoscaler->max_replicas);
  if (scenario.options.workers > most) {
    return absl::InvalidArgumentError("--workers is more than --max_workers");
  }
  const auto run = [&](int workers) {
    scenario.options.workers = workers;
    if (autoscaler.has_value()) autoscaler->min_replicas = workers;
    return Simulate(scenario, interrupt, console);
  };
  ASSIGN_OR_RETURN(const FleetSearch search,
                   FindSmallestFleet(slo, scenario.options.workers, most, run));
  nlohmann::ordered_json fleets = nlohmann::ordered_json::array();
  for (const simulate::Results& results : search.tried) fleets.push_back(ResultsJson(results));
  nlohmann::ordered_json json = {{"slo", flags.slo}, {"workers", nullptr}, {"fleets", fleets}};
  if (search.smallest.has_value()) json["workers"] = *search.smallest;
  json["cost"] = scenario.options.profile.name;
  if (!flags.svg.empty()) RETURN_IF_ERROR(WriteFile(flags.svg, PlotSearch(search)));
  RETURN_IF_ERROR(Print(flags, json, FormatSearch(search), console));
  return search.smallest.has_value() ? 0 : 1;
}

absl::StatusOr<int> RunScenario(const SimulateFlags& flags, Interrupt& interrupt,
                                const Console& console) {
  std::optional<Slo> slo;
  if (!flags.slo.empty()) {
    ASSIGN_OR_RETURN(slo, ParseSlo(flags.slo));
  }
  ASSIGN_OR_RETURN(const Scenario scenario, MakeScenario(flags));
  if (flags.find != "none") {
    if (!slo.has_value()) return absl::InvalidArgumentError("--find needs --slo");
    return Find(flags, *slo, scenario, interrupt, console);
  }
  if (!flags.svg.empty() && !scenario.options.autoscaler.has_value()) {
    return absl::InvalidArgumentError("--svg needs --find or --autoscale");
  }
  ASSIGN_OR_RETURN(const simulate::Results results, Simulate(scenario, interrupt, console));
  if (!flags.svg.empty()) RETURN_IF_ERROR(WriteFile(flags.svg, PlotScaling(results)));
  nlohmann::ordered_json json = ResultsJson(results);
  json["cost"] = scenario.options.profile.name;
  std::string table = FormatResults(results);
  if (slo.has_value()) {
    const bool holds = Holds(*slo, results);
    json["slo"] = {{"terms", flags.slo}, {"holds", holds}};
    table += holds ? "the SLO holds\n" : "the SLO does not hold\n";
  }
  RETURN_IF_ERROR(Print(flags, json, table, console));
  if (slo.has_value()) return Holds(*slo, results) ? 0 : 1;
  return results.failed == 0 && results.ok > 0 ? 0 : 1;
}

}  // namespace

int RunSimulate(const SimulateFlags& flags, Interrupt& interrupt, const Console& console) {
  const absl::StatusOr<int> code = RunScenario(flags, interrupt, console);
  if (code.ok()) return *code;
  if (absl::IsCancelled(code.status())) return 130;
  console.err << "continuo simulate: " << DescribeError(code.status()) << std::endl;
  return absl::IsInvalidArgument(code.status()) ? 2 : 1;
}

}  // namespace continuo::cli
