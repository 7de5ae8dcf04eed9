// SPDX-License-Identifier: Apache-2.0
// Compares routing policies on recorded arrivals: several gateways, each with its own Router,
// before simulated workers on a virtual clock, with reports that are some time apart. Prints one
// JSON line for each trace, load and policy: time to first token and between tokens, the share of
// prompt tokens found in the workers' caches, and how unevenly the work was divided.
//
//   policy_bench [--traces=../shared/data/traces] [--only=PART_OF_A_TRACE'S_NAME]
//                [--gateways=4] [--workers=12] [--speed=1,1.5] [--report_seconds=0.25]
//                [--with_session=1,0.5] [--seed=1] [--copies=1] [--seconds=1e9]
//
// `speed` divides the time between arrivals; `with_session` is the share of the sessions whose
// clients name them. `copies` of the trace are laid over each other, for a large fleet, and their
// first `seconds` are taken. Each request comes to a random gateway. The baselines beside the
// gateway's own policies are
//   round_robin  each gateway takes the workers in turn, from a random one at the start;
//   minimum      the least loaded of all instead of two, to show why not to use it;
//   oracle       minimum by the true loads of this moment, which no gateway can know.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <random>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "services/gateway/routing/route_hash.h"
#include "services/gateway/routing/router.h"
#include "tests/bench/gateway/simulated_worker.h"
#include "tests/bench/gateway/traces.h"
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

// The state of the gateway that picks. It is global because a Policy is a function without state.
uint64_t g_turn = 0;
std::optional<size_t> RoundRobin(const RouteKey&, std::span<const Candidate> candidates,
                                 absl::BitGenRef) {
  return g_turn++ % candidates.size();
}

struct Contestant {
  std::string name;
  Policy policy;
  bool by_session = false;
  bool reports_at_once = false;
};

double Percentile(std::vector<double>& values, double share) {
  if (values.empty()) return 0;
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, at);
  return *at;
}

class Simulation {
 public:
  Simulation(int num_gateways, int num_workers, double report_seconds, double with_session,
             uint64_t seed, const Contestant& contestant)
      : report_seconds_(report_seconds),
        with_session_(with_session),
        reports_at_once_(contestant.reports_at_once),
        random_(seed),
        workers_(static_cast<size_t>(num_workers), SimulatedWorker(model_)),
        busy_(workers_.size(), false),
        seconds_busy_(workers_.size(), 0) {
    for (int i = 0; i < num_gateways; ++i) {
      routers_.push_back(std::make_unique<Router>(contestant.policy, &view_, &clock_, random_,
                                                  RouterOptions{.max_report_age = absl::Hours(1)}));
      turns_.push_back(random_() % workers_.size());
    }
  }

  nlohmann::json Run(const std::vector<TraceRequest>& trace, double speed) {
    ReportEverySoOften();
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
    // PrefixHash would see the first two blocks of the prompt.
    uint64_t hash = 0;
    for (size_t i = 0; i < std::min<size_t>(2, request.blocks.size()); ++i) {
      hash = (hash ^ (request.blocks[i] + 1)) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
    if (reports_at_once_) Report();
    const size_t gateway = arrivals_random_() % routers_.size();
    g_turn = turns_[gateway];
    Lease lease = *routers_[gateway]->Pick({.prompt_tokens = request.input_tokens,
                                            .prefix_hash = hash,
                                            .session_hash = SessionOf(request)});
    turns_[gateway] = g_turn;
    const size_t worker = static_cast<size_t>(std::stoi(lease.address()));
    const uint64_t id = next_id_++;
    leases_.emplace(id, std::move(lease));
    workers_[worker].Add(&request, id);
    prompt_tokens_ += static_cast<double>(request.input_tokens);
    arrivals_.emplace(id, now_);
    if (!busy_[worker]) Step(worker);
  }

  uint64_t SessionOf(const TraceRequest& request) const {
    if (request.session < 0) return 0;
    const uint64_t hash = SessionHash(std::to_string(request.session), "default");
    // These are other bits than those that choose a worker.
    const double draw = static_cast<double>((hash * 0x9e3779b97f4a7c15u) >> 11) * 0x1.0p-53;
    return draw < with_session_ ? hash : 0;
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
    snapshot.discovery_complete = true;
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
  }
  void ReportEverySoOften() {
    Report();
    At(now_ + report_seconds_, [this] { ReportEverySoOften(); });
  }

  const double report_seconds_, with_session_;
  const bool reports_at_once_;
  const WorkerModel model_;
  ManualClock clock_;
  const absl::Duration start_ = clock_.Elapsed();
  LoadView view_;
  std::mt19937_64 random_, arrivals_random_{1};   // the same arrivals for every policy
  std::vector<std::unique_ptr<Router>> routers_;  // one for each gateway
  std::vector<uint64_t> turns_;                   // of RoundRobin, one for each gateway
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

std::vector<double> Numbers(const std::string& list) {
  std::vector<double> numbers;
  std::stringstream stream(list);
  for (std::string number; std::getline(stream, number, ',');) numbers.push_back(std::stod(number));
  return numbers;
}

int Main(int argc, char** argv) {
  std::string traces = "../shared/data/traces", only, speeds = "1,1.5", with_session = "1,0.5";
  int workers = 12, gateways = 4;
  uint64_t seed = 1;
  double report_seconds = 0.25, seconds = 1e9;
  int copies = 1;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&](const std::string& flag) { return argument.substr(flag.size()); };
    if (argument.starts_with("--traces=")) traces = value("--traces=");
    if (argument.starts_with("--only=")) only = value("--only=");
    if (argument.starts_with("--gateways=")) gateways = std::stoi(value("--gateways="));
    if (argument.starts_with("--workers=")) workers = std::stoi(value("--workers="));
    if (argument.starts_with("--speed=")) speeds = value("--speed=");
    if (argument.starts_with("--with_session=")) with_session = value("--with_session=");
    if (argument.starts_with("--copies=")) copies = std::stoi(value("--copies="));
    if (argument.starts_with("--seconds=")) seconds = std::stod(value("--seconds="));
    if (argument.starts_with("--seed=")) seed = std::stoull(value("--seed="));
    if (argument.starts_with("--report_seconds=")) {
      report_seconds = std::stod(value("--report_seconds="));
    }
  }
  const std::vector<TraceRequest> mooncake =
      ReadMooncake(traces + "/mooncake/conversation_trace.jsonl");
  const std::vector<std::pair<std::string, std::vector<TraceRequest>>> inputs = {
      {"mooncake/conversation", mooncake},
      {"mooncake/conversation, one system prompt", BehindSystemPrompt(mooncake)},
      {"azure2023_conv", ReadCsv(traces + "/normalised/azure2023_conv.csv")},
      {"servegen_m-large", ReadCsv(traces + "/normalised/servegen_m-large_1h.csv")}};
  if (copies < 1) {
    std::fprintf(stderr, "--copies=%d is less than one\n", copies);
    return 2;
  }
  std::vector<Contestant> contestants;
  for (const NamedPolicy& policy : kPolicies) {
    contestants.push_back(
        {.name = std::string(policy.name),
         .policy = policy.policy,
         .by_session = policy.policy == &SessionAffinity || policy.policy == &Affinity});
  }
  contestants.push_back({.name = "round_robin", .policy = &RoundRobin});
  contestants.push_back({.name = "minimum", .policy = &Minimum});
  contestants.push_back({.name = "oracle", .policy = &Minimum, .reports_at_once = true});
  const std::vector<double> shares = Numbers(with_session);
  for (const auto& [name, recorded] : inputs) {
    if (recorded.empty()) {
      std::fprintf(stderr, "no trace at %s/%s\n", traces.c_str(), name.c_str());
      return 1;
    }
    if (name.find(only) == std::string::npos) continue;
    const std::vector<TraceRequest> trace = Overlaid(recorded, copies, seconds);
    for (const double speed : Numbers(speeds)) {
      for (const Contestant& contestant : contestants) {
        const bool by_session = contestant.by_session && trace[0].session >= 0;
        for (const double share : by_session ? shares : std::vector<double>{0}) {
          nlohmann::json result =
              Simulation(gateways, workers, report_seconds, share, seed, contestant)
                  .Run(trace, speed);
          result["trace"] = name;
          result["policy"] = contestant.name;
          result["speed"] = speed;
          result["requests"] = trace.size();
          if (by_session) result["with_session"] = share;
          std::printf("%s\n", result.dump().c_str());
          std::fflush(stdout);
        }
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace continuo::gateway

int main(int argc, char** argv) { return continuo::gateway::Main(argc, argv); }
