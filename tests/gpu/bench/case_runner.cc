// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/case_runner.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <utility>

#include "services/base/check.h"
#include "tests/gpu/bench/rounds.h"

namespace continuo {
namespace {

constexpr size_t kRounds = 7, kMostRounds = 21;
constexpr double kRoundSeconds = 0.01;
constexpr int kMaxCalls = 2000;  // in a round: nodes of a graph, or a few enqueued calls each
constexpr unsigned kCaseSeconds = 120;  // a case that takes longer hangs

// The state that a process leaves behind, in memory that it shares with the first one.
struct Progress {
  size_t next;  // the case that runs, or the first one that has not run
  bool running;
  std::array<char, 128> name, group;
};

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Calls that are measured again and again.
class Measured {
 public:
  // The first calls load code, look up algorithms, make room and capture the graph. No other case
  // has the key `key`.
  Measured(CaseSource& source, Calls calls, bool is_capturable, int64_t key)
      : source_(source), calls_(std::move(calls)), is_capturable_(is_capturable), key_(key) {
    CONTINUO_CHECK(!calls_.empty());
    const auto each_once = [&] {
      for (const auto& call : calls_) call();
    };
    each_once();
    source_.Wait();
    const double seconds = SecondsOf([&] {
      each_once();
      source_.Wait();
    });
    const int most = std::max(1, kMaxCalls / static_cast<int>(calls_.size()));
    times_ = std::clamp(static_cast<int>(kRoundSeconds / seconds), 1, most);
    for (int i = 0; i < 3; ++i) Seconds();  // eager, captured, and replayed
  }

  // Returns the seconds of a call, in one round.
  double Seconds() {
    return SecondsOf([&] {
             const auto all = [&] {
               for (int i = 0; i < times_; ++i) {
                 for (const auto& call : calls_) call();
               }
               return absl::OkStatus();
             };
             EndOnFailure(is_capturable_ ? source_.device().RunGraph(std::array{key_}, all)
                                         : all());
             source_.Wait();
           }) /
           (times_ * static_cast<double>(calls_.size()));
  }

 private:
  CaseSource& source_;
  const Calls calls_;
  const bool is_capturable_;
  const int64_t key_;
  int times_ = 1;
};

// Measures the cases of one source.
class Runner {
 public:
  explicit Runner(CaseSource& source) : source_(source) {}

  nlohmann::ordered_json Run(size_t index);

 private:
  const Case& CeilingOf(const std::string& name) const {
    const auto cases = source_.cases();
    const auto it = std::find_if(cases.begin(), cases.end(), [&](const Case& c) {
      return c.group == kCeilings && c.name == name;
    });
    CONTINUO_CHECK(it != cases.end());
    return *it;
  }

  CaseSource& source_;
  std::map<std::string, Calls> ceilings_;  // their arguments are kept
};

nlohmann::ordered_json Runner::Run(size_t index) {
  const Case& c = source_.cases()[index];
  std::vector<Amount> amounts;
  for (const std::string& name : c.ceilings) {
    const Case& ceiling = CeilingOf(name);
    amounts.push_back({ceiling.bytes, ceiling.flops});
    if (ceilings_.contains(name)) continue;
    ceilings_[name] = ceiling.make();
    source_.KeepArguments();
  }
  std::vector<Measured> things;  // ceilings, then the case and its rival
  const auto add = [&](Calls calls, bool is_capturable) {
    things.emplace_back(source_, std::move(calls), is_capturable,
                        static_cast<int64_t>(things.size()));
  };
  for (const std::string& name : c.ceilings) add(ceilings_[name], CeilingOf(name).is_capturable);
  const size_t num_ceilings = things.size();
  add(c.make(), c.is_capturable);
  if (c.make_rival) add(c.make_rival(), c.is_capturable);

  std::vector<std::function<double()>> turns;
  for (Measured& thing : things) turns.push_back([&thing] { return thing.Seconds(); });
  const std::vector<Round> rounds = MeasureInTurn(turns, num_ceilings, kRounds, kMostRounds);
  const std::vector<Round> steady = SteadyRounds(rounds, num_ceilings);
  things.clear();
  source_.device().DropGraphs();
  source_.FreeArguments();

  // Without any steady round the figure is of all rounds, and says so.
  const std::vector<Round>& kept = steady.empty() ? rounds : steady;
  const Spread spread = SpreadOf(kept, num_ceilings);
  nlohmann::ordered_json row = {{"op", c.name},
                                {"group", c.group},
                                {"us", spread.median * 1e6},
                                {"least_us", spread.least * 1e6},
                                {"most_us", spread.most * 1e6},
                                {"gb_per_s", c.bytes / spread.median * 1e-9},
                                {"tflop_per_s", c.flops / spread.median * 1e-12},
                                {"rounds", rounds.size()},
                                {"steady_rounds", steady.size()}};
  if (num_ceilings > 0) {
    std::vector<double> seconds;
    for (size_t i = 0; i < num_ceilings; ++i) {
      seconds.push_back(SpreadOf(kept, i).median);
      if (amounts[i].flops > 0) {
        row["ceiling_tflop_per_s"] = amounts[i].flops / seconds[i] * 1e-12;
      } else {
        row["ceiling_gb_per_s"] = amounts[i].bytes / seconds[i] * 1e-9;
      }
    }
    row["of_ceiling"] = LeastSeconds({c.bytes, c.flops}, amounts, seconds) / spread.median;
  }
  if (c.make_rival) {
    const double rival = SpreadOf(kept, num_ceilings + 1).median;
    row["rival"] = c.rival;
    row["rival_us"] = rival * 1e6;
    row["of_rival"] = rival / spread.median;
  }
  return row;
}

void Print(const nlohmann::ordered_json& row) {
  const auto number = [&](const char* field) { return row[field].get<double>(); };
  std::printf("%-48s %10.2f us  %7.1f GB/s  %7.2f TFLOP/s  (%.2f to %.2f us)",
              row["op"].get<std::string>().c_str(), number("us"), number("gb_per_s"),
              number("tflop_per_s"), number("least_us"), number("most_us"));
  if (row.contains("of_ceiling")) {
    std::printf("  %5.1f %% of ceiling", number("of_ceiling") * 100);
  }
  if (row.contains("rival")) {
    std::printf("  %5.1f %% of %s", number("of_rival") * 100,
                row["rival"].get<std::string>().c_str());
  }
  if (number("steady_rounds") < kRounds) {
    std::printf("  UNSTEADY: %.0f of %.0f rounds", number("steady_rounds"), number("rounds"));
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Append(const std::string& json, const nlohmann::ordered_json& row) {
  if (!json.empty()) std::ofstream(json, std::ios::app) << row << std::endl;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text.data();
}

// Runs all cases from progress.next on.
int RunRest(CaseSource& source, const RunOptions& options, Progress& progress) {
  std::ofstream file(options.json.empty() ? "/dev/null" : options.json, std::ios::app);
  const std::span<const Case> cases = source.cases();
  if (progress.next == 0) {
    std::printf("%s, %s\n", source.device_name().c_str(), source.device().name().c_str());
    file << nlohmann::ordered_json({{"device", source.device_name()},
                                    {"path", source.device().name()},
                                    {"date", Now()},
                                    {"command", options.command}})
         << std::endl;
  }
  Runner runner(source);
  bool any = progress.next > 0;
  for (; progress.next < cases.size(); ++progress.next) {
    const Case& c = cases[progress.next];
    if (!options.only.empty() && c.group != options.only) continue;
    any = true;
    std::snprintf(progress.name.data(), progress.name.size(), "%s", c.name.c_str());
    std::snprintf(progress.group.data(), progress.group.size(), "%s", c.group.c_str());
    progress.running = true;
    alarm(kCaseSeconds);
    const nlohmann::ordered_json row = runner.Run(progress.next);
    alarm(0);
    progress.running = false;
    Print(row);
    file << row << std::endl;
  }
  if (!any) std::fprintf(stderr, "there is no group %s\n", options.only.c_str());
  return any ? 0 : 1;
}

}  // namespace

void EndOnFailure(const absl::Status& status) {
  if (status.ok()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(1);
}

int RunCases(const std::function<std::unique_ptr<CaseSource>()>& open, const RunOptions& options) {
  if (!options.json.empty()) std::ofstream(options.json, std::ios::trunc);
  void* const shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CONTINUO_CHECK(shared != MAP_FAILED);
  auto* const progress = new (shared) Progress();
  int failed = 0;
  while (true) {
    std::fflush(stdout);
    const pid_t child = fork();
    CONTINUO_CHECK(child >= 0);
    if (child == 0) {
      const std::unique_ptr<CaseSource> source = open();
      const int code = source == nullptr ? 1 : RunRest(*source, options, *progress);
      std::fflush(stdout);
      // Destructors are skipped: one that hangs or fails would count as a case's failure.
      std::_Exit(code);
    }
    int status = 0;
    CONTINUO_CHECK(waitpid(child, &status, 0) == child);
    if (!progress->running) {
      if (failed > 0) std::printf("failed: %d\n", failed);
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
      if (code != 0) Append(options.json, {{"failed", true}});
      return failed == 0 ? code : 1;
    }
    std::printf("%-48s failed, %s\n", progress->name.data(),
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
    Append(options.json,
           {{"op", progress->name.data()}, {"group", progress->group.data()}, {"failed", true}});
    ++failed;
    ++progress->next;
    progress->running = false;
  }
}

}  // namespace continuo
