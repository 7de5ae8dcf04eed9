// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/lifetime/load_board.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace continuo::server {
namespace {

// The board's thread wakes at least this often.
constexpr absl::Duration kLongestWait = absl::Hours(1);

// True if the difference is at least one of `parts` parts of `whole`. Any is where there is no
// whole.
bool IsPart(int64_t before, int64_t now, int64_t whole, int64_t parts) {
  return before != now && std::abs(now - before) * parts >= whole;
}

}  // namespace

bool ChangeMatters(const engine::EngineLoad& before, const engine::EngineLoad& now) {
  // As many tokens cost as much as a full worker: kTokensPerUnit of the gateway's policies.
  constexpr int64_t kTokensOfAFullWorker = 4096;
  const auto has_queue = [](const engine::EngineLoad& load) {
    return load.waiting > 0 || load.pending_prompt_tokens > 0;
  };
  return has_queue(before) != has_queue(now) ||
         IsPart(before.running + before.waiting, now.running + now.waiting, now.max_running, 32) ||
         IsPart(before.pending_prompt_tokens, now.pending_prompt_tokens, kTokensOfAFullWorker,
                32) ||
         IsPart(before.used_blocks, now.used_blocks, now.total_blocks, 64);
}

absl::Duration WatchPace::NextDue(uint64_t changes, uint64_t state_changes) const {
  constexpr absl::Duration kAtOnce = -absl::InfiniteDuration();
  if (last_report_time_ == kAtOnce || state_changes != state_changes_) return kAtOnce;
  return last_report_time_ + (changes != changes_ ? min_interval_ : max_interval_);
}

void WatchPace::Reported(absl::Duration now, uint64_t changes, uint64_t state_changes) {
  last_report_time_ = now;
  changes_ = changes;
  state_changes_ = state_changes;
}

LoadBoard::LoadBoard(std::function<v1::WatchLoadResponse()> read, const Clock* clock)
    : read_(std::move(read)), clock_(clock), thread_([this] { Run(); }) {}

void LoadBoard::Watch(std::shared_ptr<LoadWatcher> watcher, WatchPace pace) {
  {
    const std::lock_guard lock(mutex_);
    if (!closed_) {
      watchers_.push_back({std::move(watcher), pace});
      news_ = true;
      changed_.notify_one();
      return;
    }
  }
  watcher->Close();
}

void LoadBoard::Unwatch(const LoadWatcher* watcher) {
  const std::lock_guard lock(mutex_);
  std::erase_if(watchers_, [&](const Entry& entry) { return entry.watcher.get() == watcher; });
}

void LoadBoard::Update(const engine::EngineLoad& load) {
  const std::lock_guard lock(mutex_);
  if (!ChangeMatters(load_, load)) return;
  load_ = load;
  ++changes_;
  news_ = true;
  changed_.notify_one();
}

void LoadBoard::StateChanged() {
  const std::lock_guard lock(mutex_);
  ++state_changes_;
  news_ = true;
  changed_.notify_one();
}

void LoadBoard::Close() {
  std::vector<Entry> watchers;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    watchers.swap(watchers_);
    changed_.notify_one();
  }
  for (const Entry& entry : watchers) entry.watcher->Close();
  if (thread_.joinable()) thread_.join();
}

void LoadBoard::Run() {
  while (true) {
    std::vector<std::shared_ptr<LoadWatcher>> due;
    {
      std::unique_lock lock(mutex_);
      if (closed_) return;
      const absl::Duration now = clock_->Elapsed();
      absl::Duration wake = now + kLongestWait;
      for (Entry& entry : watchers_) {
        absl::Duration next = entry.pace.NextDue(changes_, state_changes_);
        if (next <= now) {
          due.push_back(entry.watcher);
          entry.pace.Reported(now, changes_, state_changes_);
          next = entry.pace.NextDue(changes_, state_changes_);
        }
        wake = std::min(wake, next);
      }
      news_ = false;
      if (due.empty()) {
        changed_.wait_for(lock, absl::ToChronoNanoseconds(wake - now),
                          [this] { return closed_ || news_; });
        continue;
      }
    }
    const v1::WatchLoadResponse response = read_();
    for (const auto& watcher : due) watcher->Send(response);
  }
}

}  // namespace continuo::server
