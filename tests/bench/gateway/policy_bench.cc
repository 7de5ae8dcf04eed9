// SPDX-License-Identifier: Apache-2.0
// What each routing policy makes of real arrivals: the own Routers and policies of several
// gateways before simulated workers, on a virtual clock, with reports that are some time apart.
// Prints for each trace, load and policy one JSON line: time to first token and between tokens,
// share of prompt tokens found in the workers' caches, and how unevenly the work was divided.
//
//   policy_bench [--traces=../shared/data/traces] [--gateways=4] [--workers=12] [--speed=1,1.5]
//                [--report_seconds=0.25]
//
// `speed` divides the time between arrivals. `minimum` takes the least loaded of all instead of
// two; it stands there to show why not to.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/gateway/router.h"
#include "tests/bench/gateway/simulated_worker.h"
#include "tests/testing/manual_clock.h"

namespace continuo::gateway {
namespace {

std::optional<size_t> Minimum(const RouteKey& key, std::span<const Candidate> candidates,
                              absl::BitGenRef) {
  size_t best = 0;
  for (size_t i = 1; i < candidates.size(); ++i) {
    if (Cost(key, candidates[i]) < Cost(key, candidates[best])) best = i;
  }
  return best;
}

std::vector<TraceRequest> ReadMooncake(const std::string& path) {
  std::vector<TraceRequest> trace;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    TraceRequest& request = trace.emplace_back();
    request.arrival = json["timestamp"].get<double>() / 1000;
    request.input_tokens = json["input_length"];
    request.output_tokens = std::max<int64_t>(1, json["output_length"]);
    request.blocks = json["hash_ids"].get<std::vector<uint64_t>>();
  }
  return trace;
}

// Columns arrival_s, input_tokens, output_tokens, and others.
std::vector<TraceRequest> ReadCsv(const std::string& path) {
  std::vector<TraceRequest> trace;
  std::ifstream file(path);
  std::vector<std::string> names;
  for (std::string line; std::getline(file, line);) {
    std::stringstream fields(line);
    std::map<std::string, double> row;
    size_t column = 0;
    for (std::string field; std::getline(fields, field, ','); ++column) {
      if (trace.empty() && row.empty() && names.size() == column && !std::isdigit(field[0])) {
        names.push_back(field);
      } else {
        row[names.at(column)] = std::atof(field.c_str());
      }
    }
    if (row.empty()) continue;
    trace.push_back(
        {.arrival = row["arrival_s"],
         .input_tokens = std::max<int64_t>(1, static_cast<int64_t>(row["input_tokens"])),
         .output_tokens = std::max<int64_t>(1, static_cast<int64_t>(row["output_tokens"]))});
  }
  return trace;
}

double Percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

class Simulation {
 public:
  Simulation(int num_gateways, int num_workers, double report_seconds, Policy policy)
      : report_seconds_(report_seconds),
        workers_(static_cast<size_t>(num_workers), SimulatedWorker(model_)),
        busy_(workers_.size(), false),
        seconds_busy_(workers_.size(), 0) {
    for (int i = 0; i < num_gateways; ++i) {
      routers_.push_back(std::make_unique<Router>(policy, &view_, &clock_, random_,
                                                  RouterOptions{.max_report_age = absl::Hours(1)}));
    }
  }

  nlohmann::json Run(const std::vector<TraceRequest>& trace, double speed) {
    Report();
    for (const TraceRequest& request : trace) {
      At(request.arrival / speed, [this, &request] { Arrive(request); });
    }
    left_ = trace.size();
    while (left_ > 0) {
      const Event event = events_.top();
      events_.pop();
      clock_.Advance(absl::Seconds(event.time) - (clock_.Elapsed() - start_));
      now_ = event.time;
      event.callback();
    }
    const double most = *std::ranges::max_element(seconds_busy_);
    double sum = 0;
    for (const double seconds : seconds_busy_) sum += seconds;
    return {{"ttft_p50", Percentile(first_, 0.5)},
            {"ttft_p99", Percentile(first_, 0.99)},
            {"inter_token_p50", Percentile(between_, 0.5)},
            {"inter_token_p99", Percentile(between_, 0.99)},
            {"cache_hit", prompt_tokens_ > 0 ? hit_tokens_ / prompt_tokens_ : 0},
            {"utilisation", sum / static_cast<double>(workers_.size()) / now_},
            {"busiest_over_mean", most * static_cast<double>(workers_.size()) / sum}};
  }

 private:
  struct Event {
    double time;
    uint64_t number;
    std::function<void()> callback;
    bool operator<(const Event& other) const {
      return std::pair(time, number) > std::pair(other.time, other.number);
    }
  };
  void At(double time, std::function<void()> callback) {
    events_.push({time, next_event_++, std::move(callback)});
  }

  void Arrive(const TraceRequest& request) {
    // The first two blocks are what PrefixHash would see of the prompt.
    uint64_t hash = 0;
    for (size_t i = 0; i < std::min<size_t>(2, request.blocks.size()); ++i) {
      hash = (hash ^ (request.blocks[i] + 1)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    Router& router = *routers_[next_id_ % routers_.size()];
    Lease lease = *router.Pick({.prompt_tokens = request.input_tokens, .prefix_hash = hash});
    const size_t worker = static_cast<size_t>(std::stoi(lease.address()));
    const uint64_t id = next_id_++;
    leases_.emplace(id, std::move(lease));
    workers_[worker].Add(&request, id);
    prompt_tokens_ += static_cast<double>(request.input_tokens);
    arrivals_.emplace(id, now_);
    if (!busy_[worker]) Step(worker);
  }

  void Step(size_t w) {
    if (workers_[w].idle()) {
      busy_[w] = false;
      return;
    }
    busy_[w] = true;
    std::vector<uint64_t> ended;
    const double duration = workers_[w].Step(
        now_,
        [&](const SimulatedWorker::Job& job, double time) {
          if (job.generated == 0) {
            first_.push_back(time - arrivals_.at(job.id));
            hit_tokens_ += static_cast<double>(job.hit_tokens);
          } else {
            between_.push_back(time - job.last_token);
          }
        },
        [&](const SimulatedWorker::Job& job) { ended.push_back(job.id); });
    seconds_busy_[w] += duration;
    At(now_ + duration, [this, w, ended] {
      for (const uint64_t id : ended) {
        leases_.erase(id);
        arrivals_.erase(id);
        --left_;
      }
      Step(w);
    });
  }

  void Report() {
    LoadSnapshot snapshot;
    snapshot.known_models = {"m"};
    snapshot.settled = true;
    for (size_t i = 0; i < workers_.size(); ++i) {
      const SimulatedWorker& worker = workers_[i];
      snapshot.workers.push_back(std::make_shared<const WorkerLoad>(
          WorkerLoad{.address = std::to_string(i),
                     .incarnation = "1",
                     .model = "m",
                     .state = WorkerState::kServing,
                     .running_requests = worker.num_running(),
                     .waiting_requests = worker.num_waiting(),
                     .pending_prompt_tokens = worker.pending_tokens(),
                     .used_kv_blocks = worker.used_blocks(),
                     .total_kv_blocks = model_.kv_blocks,
                     .block_size_tokens = model_.block_tokens,
                     .max_running_requests = model_.max_running,
                     .report_time = clock_.Elapsed()}));
    }
    view_.Set(std::move(snapshot));
    At(now_ + report_seconds_, [this] { Report(); });
  }

  const double report_seconds_;
  const WorkerModel model_;
  ManualClock clock_;
  const absl::Duration start_ = clock_.Elapsed();
  LoadView view_;
  std::mt19937_64 random_{1};
  std::vector<std::unique_ptr<Router>> routers_;  // one a gateway; they take turns
  std::vector<SimulatedWorker> workers_;
  std::vector<bool> busy_;
  std::vector<double> seconds_busy_;
  double now_ = 0;
  std::priority_queue<Event> events_;
  uint64_t next_event_ = 0, next_id_ = 0;
  std::unordered_map<uint64_t, Lease> leases_;
  std::unordered_map<uint64_t, double> arrivals_;
  size_t left_ = 0;
  double prompt_tokens_ = 0, hit_tokens_ = 0;
  std::vector<double> first_, between_;
};

int Main(int argc, char** argv) {
  std::string traces = "../shared/data/traces", speeds = "1,1.5";
  int workers = 12, gateways = 4;
  double report_seconds = 0.25;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const std::string& flag) { return argument.substr(flag.size()); };
    if (argument.starts_with("--traces=")) traces = value("--traces=");
    if (argument.starts_with("--gateways=")) gateways = std::stoi(value("--gateways="));
    if (argument.starts_with("--workers=")) workers = std::stoi(value("--workers="));
    if (argument.starts_with("--speed=")) speeds = value("--speed=");
    if (argument.starts_with("--report_seconds=")) {
      report_seconds = std::stod(value("--report_seconds="));
    }
  }
  const std::vector<std::pair<std::string, std::vector<TraceRequest>>> inputs = {
      {"mooncake/conversation", ReadMooncake(traces + "/mooncake/conversation_trace.jsonl")},
      {"azure2023_conv", ReadCsv(traces + "/normalised/azure2023_conv.csv")},
      {"servegen_m-large", ReadCsv(traces + "/normalised/servegen_m-large_1h.csv")}};
  std::vector<NamedPolicy> policies;
  for (const NamedPolicy& policy : kPolicies) policies.push_back(policy);
  policies.push_back({"minimum", &Minimum});
  for (const auto& [name, trace] : inputs) {
    if (trace.empty()) {
      std::fprintf(stderr, "no trace at %s/%s\n", traces.c_str(), name.c_str());
      return 1;
    }
    std::stringstream list(speeds);
    for (std::string speed; std::getline(list, speed, ',');) {
      for (const NamedPolicy& policy : policies) {
        // Sessions are not in these traces.
        if (policy.name == "session_affinity" || policy.name == "affinity") continue;
        nlohmann::json result = Simulation(gateways, workers, report_seconds, policy.policy)
                                    .Run(trace, std::stod(speed));
        result["trace"] = name;
        result["policy"] = policy.name;
        result["speed"] = std::stod(speed);
        result["requests"] = trace.size();
        std::printf("%s\n", result.dump().c_str());
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace continuo::gateway

int main(int argc, char** argv) { return continuo::gateway::Main(argc, argv); }
