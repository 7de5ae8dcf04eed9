// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/case_runner.h"

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
#include <fstream>
#include <memory>
#include <new>

#include "services/base/check.h"

namespace continuo {
namespace {

constexpr int kRounds = 7;
constexpr double kRoundSeconds = 0.01;
constexpr int kMaxCalls = 2000;         // of a round: nodes of a graph, or a few for each call
constexpr unsigned kCaseSeconds = 120;  // a case that takes longer hangs

// What a process leaves behind, in memory that it shares with the first one.
struct Progress {
  size_t next;  // the case that runs, or the first that has not
  bool running;
  std::array<char, 128> name;
};

double SecondsOf(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Seconds of a call, by round.
std::array<double, kRounds> Measure(CaseSource& source, const Case& c, int64_t key) {
  const auto calls = c.make();
  CONTINUO_CHECK(!calls.empty());
  const auto each_once = [&] {
    for (const auto& call : calls) call();
  };
  // The first ones load code, look up algorithms and make room.
  each_once();
  source.Wait();
  const double seconds = SecondsOf([&] {
    each_once();
    source.Wait();
  });
  const int most = std::max(1, kMaxCalls / static_cast<int>(calls.size()));
  const int times = std::clamp(static_cast<int>(kRoundSeconds / seconds), 1, most);
  const auto round = [&] {
    const auto all = [&] {
      for (int i = 0; i < times; ++i) each_once();
      return absl::OkStatus();
    };
    EndOnFailure(c.repeats ? source.backend().Repeat(std::array{key}, all) : all());
    source.Wait();
  };
  for (int i = 0; i < 3; ++i) round();  // enqueued, captured, and the graph itself
  std::array<double, kRounds> taken;
  for (double& one : taken) {
    one = SecondsOf(round) / (times * static_cast<double>(calls.size()));
  }
  source.backend().ForgetRepeated();
  source.FreeArguments();
  std::sort(taken.begin(), taken.end());
  return taken;
}

// All from progress.next on.
int RunRest(CaseSource& source, const std::string& only, const std::string& json,
            Progress& progress) {
  std::ofstream file(json.empty() ? "/dev/null" : json, std::ios::app);
  const std::span<const Case> cases = source.cases();
  if (progress.next == 0) {
    std::printf("%s\n", source.backend().name().c_str());
    file << "{\"device\": \"" << source.backend().name() << "\"}\n";
  }
  bool any = progress.next > 0;
  for (; progress.next < cases.size(); ++progress.next) {
    const Case& c = cases[progress.next];
    if (!only.empty() && c.group != only) continue;
    any = true;
    std::snprintf(progress.name.data(), progress.name.size(), "%s", c.name.c_str());
    progress.running = true;
    alarm(kCaseSeconds);
    const auto taken = Measure(source, c, static_cast<int64_t>(progress.next));
    alarm(0);
    progress.running = false;
    const double s = taken[kRounds / 2];
    std::printf("%-44s %10.2f us  %8.1f GB/s  %8.2f TFLOP/s  (%.2f to %.2f us)\n", c.name.c_str(),
                s * 1e6, c.bytes / s * 1e-9, c.flops / s * 1e-12, taken.front() * 1e6,
                taken.back() * 1e6);
    std::fflush(stdout);
    file << "{\"op\": \"" << c.name << "\", \"us\": " << s * 1e6
         << ", \"least_us\": " << taken.front() * 1e6 << ", \"most_us\": " << taken.back() * 1e6
         << ", \"gb_per_s\": " << c.bytes / s * 1e-9 << ", \"tflop_per_s\": " << c.flops / s * 1e-12
         << "}" << std::endl;
  }
  if (!any) std::fprintf(stderr, "there is no group %s\n", only.c_str());
  return any ? 0 : 1;
}

}  // namespace

void EndOnFailure(const absl::Status& status) {
  if (status.ok()) return;
  std::fflush(stdout);
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::_Exit(1);
}

int RunCases(const std::function<std::unique_ptr<CaseSource>()>& open, const std::string& only,
             const std::string& json) {
  if (!json.empty()) std::ofstream(json, std::ios::trunc);
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
      const int code = source == nullptr ? 1 : RunRest(*source, only, json, *progress);
      std::fflush(stdout);
      // An end that hangs or fails would count as a case's.
      std::_Exit(code);
    }
    int status = 0;
    CONTINUO_CHECK(waitpid(child, &status, 0) == child);
    if (!progress->running) {
      if (failed > 0) std::printf("failed: %d\n", failed);
      return failed == 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
    std::printf("%-44s failed, %s\n", progress->name.data(),
                WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "see above");
    ++failed;
    ++progress->next;
    progress->running = false;
  }
}

}  // namespace continuo
