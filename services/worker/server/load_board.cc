// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/load_board.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace continuo {

absl::Time WatchPace::NextDue(uint64_t changes, uint64_t state_changes) const {
  if (told_at_ == absl::InfinitePast() || state_changes != state_changes_) {
    return absl::InfinitePast();
  }
  return told_at_ + (changes != changes_ ? min_interval_ : max_interval_);
}

void WatchPace::Told(absl::Time now, uint64_t changes, uint64_t state_changes) {
  told_at_ = now;
  changes_ = changes;
  state_changes_ = state_changes;
}

LoadBoard::LoadBoard(std::function<v1::WatchLoadResponse()> read)
    : read_(std::move(read)), thread_([this] { Run(); }) {}

LoadBoard::~LoadBoard() {
  Close();
  thread_.join();
}

void LoadBoard::Watch(std::shared_ptr<LoadWatcher> watcher, WatchPace pace) {
  {
    absl::MutexLock lock(&mutex_);
    if (!closed_) {
      watchers_.push_back({std::move(watcher), pace});
      news_ = true;
      return;
    }
  }
  watcher->Close();
}

void LoadBoard::Unwatch(const LoadWatcher* watcher) {
  absl::MutexLock lock(&mutex_);
  std::erase_if(watchers_, [&](const Entry& entry) { return entry.watcher.get() == watcher; });
}

void LoadBoard::Update(const EngineLoad& load) {
  absl::MutexLock lock(&mutex_);
  const auto key = [](const EngineLoad& l) {
    return std::tie(l.running, l.waiting, l.pending_prompt_tokens, l.used_blocks, l.cached_blocks);
  };
  if (key(load) == key(load_)) return;
  load_ = load;
  ++changes_;
  news_ = true;
}

void LoadBoard::StateChanged() {
  absl::MutexLock lock(&mutex_);
  ++state_changes_;
  news_ = true;
}

void LoadBoard::Close() {
  std::vector<Entry> watchers;
  {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    watchers.swap(watchers_);
  }
  for (const Entry& entry : watchers) entry.watcher->Close();
}

void LoadBoard::Run() {
  while (true) {
    std::vector<std::shared_ptr<LoadWatcher>> due;
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) return;
      const absl::Time now = absl::Now();
      absl::Time wake = absl::InfiniteFuture();
      for (Entry& entry : watchers_) {
        absl::Time next = entry.pace.NextDue(changes_, state_changes_);
        if (next <= now) {
          due.push_back(entry.watcher);
          entry.pace.Told(now, changes_, state_changes_);
          next = entry.pace.NextDue(changes_, state_changes_);
        }
        wake = std::min(wake, next);
      }
      news_ = false;
      if (due.empty()) {
        mutex_.AwaitWithDeadline(absl::Condition(this, &LoadBoard::MustLook), wake);
        continue;
      }
    }
    const v1::WatchLoadResponse response = read_();
    for (const auto& watcher : due) watcher->Send(response);
  }
}

}  // namespace continuo
