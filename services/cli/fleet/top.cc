// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/top.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "absl/synchronization/mutex.h"
#include "services/cli/fleet/batch_view.h"
#include "services/cli/fleet/worker_feed.h"

namespace continuo::cli {
namespace {

struct ScreenSize {
  size_t width = 160, height = 10'000;  // The size where the output is not a terminal.
};

ScreenSize SizeOfTerminal() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {80, 24};
  }
  return {size.ws_col, size.ws_row};
}

// Switches the terminal to its alternate screen, without a cursor, while it lives. Does nothing
// where the output is not a terminal.
class Screen {
 public:
  Screen(std::ostream& out, bool terminal) : out_(out), terminal_(terminal) {
    if (terminal_) out_ << "\x1b[?1049h\x1b[?25l";
  }
  ~Screen() {
    if (terminal_) out_ << "\x1b[?25h\x1b[?1049l" << std::flush;
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  ScreenSize size() const { return terminal_ ? SizeOfTerminal() : ScreenSize(); }

  // Shows a picture of lines that fit the size.
  void Show(std::string picture) {
    if (!terminal_) {
      out_ << picture << std::endl;
      return;
    }
    if (!picture.empty()) picture.pop_back();  // A last newline would scroll.
    // The cursor goes home; each line clears the rest of its row, and at the end all rows below.
    out_ << "\x1b[H" << absl::StrReplaceAll(picture, {{"\n", "\x1b[K\r\n"}}) << "\x1b[K\x1b[J"
         << std::flush;
  }

 private:
  std::ostream& out_;
  const bool terminal_;
};

// Draws pictures until `over` holds (returns false) or --frames were drawn (returns true). It does
// not write with the mutex held: a terminal may block.
bool Draw(const Console& console, absl::Mutex& mutex, const BatchView& view, const TopFlags& flags,
          const std::function<bool()>& over) {
  Screen screen(console.out, console.out_terminal);
  for (uint64_t frame = 1; console.out.good(); ++frame) {
    const ScreenSize size = screen.size();
    std::string picture;
    {
      absl::MutexLock lock(&mutex);
      if (over()) return false;
      picture = view.Draw(flags.connection.server, size.width, size.height);
    }
    screen.Show(std::move(picture));
    if (frame == flags.frames) return true;
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(absl::Condition(&over), flags.interval);
  }
  return false;
}

}  // namespace

void AddTopFlags(common::Flags& flags, TopFlags* values) {
  flags.Text("worker", &values->connection.server, "Address of the worker, HOST:PORT.");
  flags.Duration("interval", &values->interval, absl::Milliseconds(20), absl::Hours(1),
                 "Time between pictures.");
  flags.Duration("timeout", &values->timeout, absl::Milliseconds(1), absl::Hours(1),
                 "Time until the worker has to answer first.");
  flags.Integer<uint64_t>("frames", &values->frames, 0, 1'000'000'000,
                          "Number of pictures after which the command ends. 0 runs until Ctrl-C.");
  AddSecurityFlags(flags, &values->connection);
}

int RunTop(const TopFlags& flags, Interrupt& interrupt, const Console& console) {
  absl::Mutex mutex;
  BatchView view;
  bool interrupted = false, answered = false;
  absl::Status last;     // The last error of the worker.
  absl::Status lasting;  // The first error for which retrying cannot help.
  const auto lose = [&](const absl::Status& why) {
    last = why;
    if (IsLasting(why) && lasting.ok()) lasting = why;
  };
  WorkerFeedSinks sinks;
  sinks.steps = [&](const v1::WatchStepsResponse& response) {
    absl::MutexLock lock(&mutex);
    view.Take(response);
  };
  sinks.load = [&](const v1::WatchLoadResponse& load) {
    absl::MutexLock lock(&mutex);
    view.Take(load);
    answered = true;
  };
  sinks.steps_lost = [&](const absl::Status& why) {
    absl::MutexLock lock(&mutex);
    view.LoseSteps(why);
    lose(why);
  };
  sinks.load_lost = [&](const absl::Status& why) {
    absl::MutexLock lock(&mutex);
    view.LoseLoad(why);
    lose(why);
  };
  WorkerFeedOptions options;
  options.connection = flags.connection;
  options.steps_interval = std::min(flags.interval, absl::Milliseconds(100));
  const auto fail = [&](const absl::Status& why) {
    console.err << "continuo top: " << DescribeError(why) << std::endl;
    return 1;
  };
  const auto feed = WorkerFeed::Start(options, sinks);
  if (!feed.ok()) return fail(feed.status());

  const Interrupt::Scope scope(&interrupt, [&] {
    absl::MutexLock lock(&mutex);
    interrupted = true;
  });
  const auto over = [&] { return interrupted || !lasting.ok(); };
  const auto begun = [&] { return over() || answered; };
  {
    absl::MutexLock lock(&mutex);
    mutex.AwaitWithTimeout(absl::Condition(&begun), flags.timeout);
    if (!begun()) {
      return fail(last.ok() ? absl::DeadlineExceededError("the worker did not answer") : last);
    }
  }
  if (Draw(console, mutex, view, flags, over)) return 0;
  absl::MutexLock lock(&mutex);
  if (interrupted) return 130;
  return lasting.ok() ? 0 : fail(lasting);
}

}  // namespace continuo::cli
