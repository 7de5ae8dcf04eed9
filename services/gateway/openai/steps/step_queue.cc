// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/steps/step_queue.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {

void StepQueue::OnOpen() {
  absl::MutexLock lock(&mutex_);
  is_open_ = true;
  Notify();
}

void StepQueue::OnSteps(const v1::WatchStepsResponse& response) {
  std::vector<std::string> added;
  added.reserve(response.steps_size());
  for (const v1::Step& step : response.steps()) added.push_back(StepJson(step, *ids_));
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  is_open_ = true;
  num_dropped_ += response.num_dropped();
  for (std::string& step : added) {
    num_bytes_ += step.size();
    steps_.push_back(std::move(step));
  }
  while (num_bytes_ > kMaxBytes && steps_.size() > 1) {
    num_bytes_ -= steps_.front().size();
    steps_.pop_front();
    ++num_dropped_;
  }
  Notify();
}

void StepQueue::OnEnd(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (end_.has_value()) return;
  end_ = status;
  Notify();
}

StepQueue::News StepQueue::Take() {
  News news;
  std::deque<std::string> steps;
  uint64_t num_dropped = 0;
  {
    absl::MutexLock lock(&mutex_);
    news.is_open = is_open_;
    news.end = end_;
    steps.swap(steps_);
    num_bytes_ = 0;
    if (!steps.empty()) num_dropped = std::exchange(num_dropped_, 0);
  }
  if (steps.empty()) return news;
  news.steps = "{\"steps\":[";
  for (const std::string& step : steps) {
    absl::StrAppend(&news.steps, news.steps.back() == '[' ? "" : ",", step);
  }
  absl::StrAppend(&news.steps, "],\"dropped\":", num_dropped, "}");
  return news;
}

void StepQueue::Close() {
  absl::MutexLock lock(&mutex_);
  notify_ = nullptr;
}

void StepQueue::Notify() {
  if (notify_) notify_();
}

}  // namespace continuo::gateway::openai
