// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/fleet.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/base/status_macros.h"
#include "services/cli/client/terminal.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"

namespace continuo::cli {
namespace {

std::string StateName(v1::WorkerState state) {
  const std::string name = v1::WorkerState_Name(state);
  return name.empty() ? "?" : name.substr(std::string("WORKER_STATE_").size());
}

double Fraction(uint64_t part, uint64_t total) {
  return total == 0 ? 0 : static_cast<double>(part) / static_cast<double>(total);
}

// Formats lines of cells in columns. A byte counts as one column: only the names of workers and
// models may contain other than ASCII.
std::string FormatTable(const std::vector<std::vector<std::string>>& lines) {
  std::vector<size_t> widths;
  for (const auto& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    for (size_t i = 0; i < line.size(); ++i) {
      text += line[i];
      if (i + 1 < line.size()) text += std::string(widths[i] - line[i].size() + 2, ' ');
    }
    text += "\n";
  }
  return text;
}

// Follows the WatchLoad of one worker. gRPC's threads call back.
class Watcher : public grpc::ClientReadReactor<v1::WatchLoadResponse> {
 public:
  Watcher(const std::string& address, absl::Mutex* mutex) : mutex_(mutex) {
    row_.address = address;
  }
  // With `one_report` the call ends after the first report, or after `timeout`.
  void Start(const Connection& connection, bool one_report, absl::Duration timeout) {
    Connection to = connection;
    to.server = row_.address;
    const auto channel = OpenChannel(to);
    if (!channel.ok()) {
      absl::MutexLock lock(mutex_);
      row_.status = channel.status();
      ended_ = true;
      return;
    }
    stub_ = v1::WorkerService::NewStub(*channel);
    AddMetadata(connection, context_);
    if (one_report) context_.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    one_report_ = one_report;
    stub_->async()->WatchLoad(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    {
      absl::MutexLock lock(mutex_);
      row_.loads[response_.model()] = response_;
      row_.status = absl::OkStatus();
    }
    if (one_report_) {
      context_.TryCancel();
    } else {
      StartRead(&response_);
    }
  }
  void OnDone(const grpc::Status& status) override {
    absl::MutexLock lock(mutex_);
    if (row_.loads.empty() || !one_report_) row_.status = common::FromGrpcStatus(status);
    if (!row_.status.ok()) row_.loads.clear();
    ended_ = true;
  }

  // These are called with the mutex held.
  const WorkerRow& row() const { return row_; }
  bool ended() const { return ended_; }
  bool answered() const { return ended_ || !row_.loads.empty(); }

 private:
  absl::Mutex* const mutex_;
  WorkerRow row_;
  bool ended_ = false, one_report_ = false;
  std::unique_ptr<v1::WorkerService::Stub> stub_;
  grpc::ClientContext context_;
  v1::WatchLoadRequest request_;
  v1::WatchLoadResponse response_;
};

}  // namespace

void AddFleetFlags(common::Flags& flags, FleetFlags* values) {
  flags.TextList("workers", &values->workers,
                 "Addresses of the workers: HOST:PORT,… or dns:///NAME:PORT for all of a name.");
  flags.Switch("watch", &values->watch, "Redraw the table until Ctrl-C.");
  flags.Switch("json", &values->json,
               "Print JSON instead of a table, with --watch one line each time.");
  flags.Duration("interval", &values->interval, absl::Milliseconds(100), absl::Hours(1),
                 "Time between the tables of --watch.");
  flags.Duration("timeout", &values->timeout, absl::Milliseconds(1), absl::Hours(1),
                 "Time until a worker has to report.");
  AddSecurityFlags(flags, &values->connection);
}

absl::StatusOr<std::vector<std::string>> ResolveWorkers(const std::vector<std::string>& workers) {
  std::vector<std::string> result;
  for (const std::string& worker : workers) {
    if (!absl::StartsWith(worker, "dns:///")) {
      result.push_back(worker);
      continue;
    }
    const std::string target = worker.substr(7);
    const size_t colon = target.rfind(':');
    if (colon == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat("--workers: \"", worker, "\" has no port"));
    }
    const std::string port = target.substr(colon + 1);
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int error = getaddrinfo(target.substr(0, colon).c_str(), port.c_str(), &hints, &found);
    if (error != 0) {
      return absl::UnavailableError(
          absl::StrCat("--workers: cannot resolve \"", worker, "\": ", gai_strerror(error)));
    }
    for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
      char host[NI_MAXHOST];
      if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) ==
          0) {
        result.push_back(a->ai_family == AF_INET6 ? absl::StrCat("[", host, "]:", port)
                                                  : absl::StrCat(host, ":", port));
      }
    }
    freeaddrinfo(found);
  }
  return result;
}

std::string FormatFleet(const std::vector<WorkerRow>& rows) {
  std::vector<std::vector<std::string>> lines = {{"WORKER", "ADDRESS", "STATE", "MODEL", "KV USED",
                                                  "KV CACHED", "RUNNING", "WAITING", "PENDING",
                                                  "PREFILL/S", "DECODE/S", "STEPS"}};
  uint64_t running = 0, waiting = 0, used = 0, cached = 0, total = 0, pending = 0, num_loads = 0;
  double prefill = 0, decode = 0;
  const auto percent = [](uint64_t part, uint64_t whole) {
    return absl::StrCat(static_cast<int>(100 * Fraction(part, whole) + 0.5), "% of ", whole);
  };
  for (const WorkerRow& row : rows) {
    if (row.loads.empty()) {
      lines.push_back({"-", row.address, "UNREACHABLE", DescribeError(row.status)});
    }
    for (const auto& [model, load] : row.loads) {
      ++num_loads;
      running += load.running_requests();
      waiting += load.waiting_requests();
      pending += load.pending_prompt_tokens();
      used += load.used_kv_blocks();
      cached += load.cached_kv_blocks();
      total += load.total_kv_blocks();
      prefill += load.prefill_tokens_per_second();
      decode += load.decode_tokens_per_second();
      lines.push_back({ForTerminal(load.worker()), row.address, StateName(load.state()),
                       ForTerminal(model), percent(load.used_kv_blocks(), load.total_kv_blocks()),
                       percent(load.cached_kv_blocks(), load.total_kv_blocks()),
                       absl::StrCat(load.running_requests()), absl::StrCat(load.waiting_requests()),
                       absl::StrCat(load.pending_prompt_tokens()),
                       FormatCount(std::floor(load.prefill_tokens_per_second() + 0.5f)),
                       FormatCount(std::floor(load.decode_tokens_per_second() + 0.5f)),
                       absl::StrCat(load.steps())});
    }
  }
  if (num_loads > 1) {
    lines.push_back({"total", "", "", "", percent(used, total), percent(cached, total),
                     absl::StrCat(running), absl::StrCat(waiting), absl::StrCat(pending),
                     FormatCount(std::floor(prefill + 0.5)), FormatCount(std::floor(decode + 0.5)),
                     ""});
  }
  return FormatTable(lines);
}

std::string FormatFleetJson(const std::vector<WorkerRow>& rows) {
  nlohmann::ordered_json workers = nlohmann::ordered_json::array();
  for (const WorkerRow& row : rows) {
    if (row.loads.empty()) {
      workers.push_back({{"address", row.address}, {"error", DescribeError(row.status)}});
    }
    for (const auto& [model, load] : row.loads) {
      workers.push_back({{"address", row.address},
                         {"worker", load.worker()},
                         {"incarnation", load.incarnation()},
                         {"state", StateName(load.state())},
                         {"model", model},
                         {"fingerprint", load.fingerprint()},
                         {"running_requests", load.running_requests()},
                         {"waiting_requests", load.waiting_requests()},
                         {"pending_prompt_tokens", load.pending_prompt_tokens()},
                         {"used_kv_blocks", load.used_kv_blocks()},
                         {"cached_kv_blocks", load.cached_kv_blocks()},
                         {"total_kv_blocks", load.total_kv_blocks()},
                         {"used_state_slots", load.used_state_slots()},
                         {"cached_state_slots", load.cached_state_slots()},
                         {"total_state_slots", load.total_state_slots()},
                         {"block_size_tokens", load.block_size_tokens()},
                         {"max_running_requests", load.max_running_requests()},
                         {"steps", load.steps()},
                         {"prefill_tokens_per_second", load.prefill_tokens_per_second()},
                         {"decode_tokens_per_second", load.decode_tokens_per_second()}});
    }
  }
  return nlohmann::ordered_json{{"workers", workers}}.dump() + "\n";
}

int RunFleet(const FleetFlags& flags, Interrupt& interrupt, const Console& console) {
  const auto addresses = ResolveWorkers(flags.workers);
  if (!addresses.ok()) {
    console.err << "continuo fleet: " << DescribeError(addresses.status()) << std::endl;
    return 1;
  }
  absl::Mutex mutex;
  bool interrupted = false;
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (const std::string& address : *addresses) {
    watchers.push_back(std::make_unique<Watcher>(address, &mutex));
    watchers.back()->Start(flags.connection, !flags.watch, flags.timeout);
  }
  // The mutex is not held here, since a cancelled call may call back from within.
  const auto cancel = [&] {
    for (const auto& watcher : watchers) watcher->Cancel();
  };
  Interrupt::Scope scope(&interrupt, [&] {
    {
      absl::MutexLock lock(&mutex);
      interrupted = true;
    }
    cancel();
  });
  // These are called with the mutex held.
  const auto all = [&](bool (Watcher::*is)() const) {
    return std::all_of(watchers.begin(), watchers.end(),
                       [is](const auto& watcher) { return (watcher.get()->*is)(); });
  };
  const auto answered = [&] { return interrupted || all(&Watcher::answered); };
  const auto ended = [&] { return all(&Watcher::ended); };
  const auto show = [&] {
    std::vector<WorkerRow> rows;
    for (const auto& watcher : watchers) rows.push_back(watcher->row());
    // Moves the cursor home and clears the screen.
    if (flags.watch && console.out_terminal && !flags.json) console.out << "\x1b[H\x1b[J";
    console.out << (flags.json ? FormatFleetJson(rows) : FormatFleet(rows)) << std::flush;
  };

  mutex.Lock();
  mutex.AwaitWithTimeout(absl::Condition(&answered), flags.timeout);
  while (flags.watch && !interrupted && !ended()) {
    show();
    mutex.AwaitWithTimeout(absl::Condition(&interrupted), flags.interval);
  }
  mutex.Unlock();
  cancel();
  absl::MutexLock lock(&mutex);
  mutex.Await(absl::Condition(&ended));
  if (interrupted) return 130;
  show();
  const bool reached = std::none_of(watchers.begin(), watchers.end(), [](const auto& watcher) {
    return watcher->row().loads.empty();
  });
  return reached ? 0 : 1;
}

}  // namespace continuo::cli
