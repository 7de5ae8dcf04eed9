// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/trace.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iostream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "services/cli/client/terminal.h"
#include "services/cli/fleet/cost_recorder.h"
#include "services/cli/fleet/step_trace.h"
#include "services/cli/fleet/worker_feed.h"
#include "services/protocol/status_name.h"

namespace continuo::cli {
namespace {

constexpr absl::Duration kFlush = absl::Milliseconds(100);

// The state that the feed writes. Members are guarded by the mutex.
struct Recording {
  explicit Recording(uint64_t max_bytes) : trace(max_bytes) {}

  absl::Mutex mutex;
  StepTrace trace;
  CostRecorder cost;
  std::string worker;  // The names of the worker and of its model.
  bool answered = false, interrupted = false;
  absl::Status last;     // The last error of the worker.
  absl::Status lasting;  // The first error for which retrying cannot help.
};

WorkerFeedSinks SinksOf(Recording& r) {
  WorkerFeedSinks sinks;
  sinks.steps = [&r](const v1::WatchStepsResponse& response) {
    absl::MutexLock lock(&r.mutex);
    r.trace.Take(response);
    r.cost.Take(response);
  };
  sinks.load = [&r](const v1::WatchLoadResponse& load) {
    absl::MutexLock lock(&r.mutex);
    r.answered = true;
    r.cost.Take(load);
    r.worker = absl::StrCat(load.worker(), ", ", load.model());
  };
  const auto lose = [&r](const absl::Status& why) {
    r.last = why;
    if (IsLasting(why) && r.lasting.ok()) r.lasting = why;
  };
  sinks.steps_lost = [&r, lose](const absl::Status& why) {
    absl::MutexLock lock(&r.mutex);
    r.trace.Lose(protocol::StatusName(why.code()));
    lose(why);
  };
  sinks.load_lost = [&r, lose](const absl::Status& why) {
    absl::MutexLock lock(&r.mutex);
    lose(why);
  };
  return sinks;
}

}  // namespace

void AddTraceFlags(common::Flags& flags, TraceFlags* values) {
  flags.Text("worker", &values->connection.server, "Address of the worker, HOST:PORT.");
  flags.Text("out", &values->out, "File to write, for ui.perfetto.dev. - is the standard output.");
  flags.Duration("duration", &values->duration, absl::Milliseconds(10), absl::Hours(24),
                 "Length of the trace.");
  flags.Bytes("max_bytes", &values->max_bytes, StepTrace::kMinBytes, uint64_t{1} << 40,
              "Size at which the trace ends early.");
  flags.Duration("timeout", &values->timeout, absl::Milliseconds(1), absl::Hours(1),
                 "Time until the worker has to answer first.");
  flags.Text("cost", &values->cost,
             "File to write as well: what the worker's steps cost, for continuo simulate --cost. "
             "The worker should be busy meanwhile, with prompts and answers as in use.");
  AddSecurityFlags(flags, &values->connection);
}

namespace {

absl::Status WriteCost(const std::string& path, const CostRecorder& cost, std::ostream& err) {
  const absl::StatusOr<std::string> profile = cost.Profile();
  if (!profile.ok()) return profile.status();
  std::ofstream file(path, std::ios::trunc);
  file << *profile << std::flush;
  if (!file.good()) return absl::UnknownError(absl::StrCat("cannot write ", path));
  err << path << ": fitted to " << cost.num_steps() << " steps, which are off by "
      << std::lround(100 * cost.Error()) << " % (root of mean squares)" << std::endl;
  return absl::OkStatus();
}

}  // namespace

int RunTrace(const TraceFlags& flags, Interrupt& interrupt, const Console& console) {
  const auto fail = [&](const absl::Status& why) {
    console.err << "continuo trace: " << DescribeError(why) << std::endl;
    return 1;
  };
  Recording r(flags.max_bytes);
  WorkerFeedOptions options;
  options.connection = flags.connection;
  options.steps_interval = absl::Milliseconds(50);
  const auto feed = WorkerFeed::Start(options, SinksOf(r));
  if (!feed.ok()) return fail(feed.status());
  const Interrupt::Scope scope(&interrupt, [&] {
    absl::MutexLock lock(&r.mutex);
    r.interrupted = true;
  });
  const auto over = [&] { return r.interrupted || !r.lasting.ok() || r.trace.full(); };
  const auto begun = [&] { return over() || r.answered; };
  {
    absl::MutexLock lock(&r.mutex);
    r.mutex.AwaitWithTimeout(absl::Condition(&begun), flags.timeout);
    if (!begun()) {
      return fail(r.last.ok() ? absl::DeadlineExceededError("the worker did not answer") : r.last);
    }
    if (!r.lasting.ok()) return fail(r.lasting);
  }

  std::ofstream file;
  if (flags.out != "-") file.open(flags.out, std::ios::trunc);
  std::ostream& out = flags.out == "-" ? console.out : file;
  const absl::Time until = absl::Now() + flags.duration;
  for (bool more = true; more && out.good();) {
    std::string text;
    {
      absl::MutexLock lock(&r.mutex);
      more =
          !r.mutex.AwaitWithDeadline(absl::Condition(&over), std::min(until, absl::Now() + kFlush));
      if (absl::Now() >= until) more = false;
      if (!more) {
        r.trace.End(r.worker, r.interrupted     ? "interrupt"
                              : r.trace.full()  ? "max_bytes"
                              : !r.lasting.ok() ? "the worker's refusal"
                                                : "duration");
      }
      text = r.trace.TakeText();
    }
    out << text;
  }
  out.flush();
  if (!out.good()) {
    return fail(
        absl::UnknownError(absl::StrCat("cannot write ", flags.out, ": ", strerror(errno))));
  }
  absl::MutexLock lock(&r.mutex);
  console.err << flags.out << ": " << r.trace.num_steps() << " steps, " << r.trace.num_requests()
              << " generations, " << r.trace.num_dropped() << " steps not seen, "
              << r.trace.num_bytes() << " bytes" << std::endl;
  if (!r.lasting.ok()) return fail(r.lasting);
  if (!flags.cost.empty()) {
    const absl::Status written = WriteCost(flags.cost, r.cost, console.err);
    if (!written.ok()) return fail(written);
  }
  return r.interrupted ? 130 : 0;
}

}  // namespace continuo::cli
