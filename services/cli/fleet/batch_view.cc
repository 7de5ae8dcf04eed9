// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/batch_view.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/client/connection.h"
#include "services/cli/client/terminal.h"

namespace continuo::cli {
namespace {

constexpr size_t kMaxRecent = 4096, kMaxCell = 80;
constexpr size_t kShortestId = 12, kLongestId = 40;
constexpr absl::Duration kRecent = absl::Seconds(1);

std::string StateOf(const BatchRow& row) {
  switch (row.state) {
    case BatchRow::State::kPrefill:
      return "prefill";
    case BatchRow::State::kGenerating:
      return "generating";
    case BatchRow::State::kPreempted:
      return "preempted";
    case BatchRow::State::kEnded:
      return absl::StrCat("end: ", FinishName(row.finish));
    case BatchRow::State::kGone:
      break;
  }
  return "gone";
}

// Draws the tokens of a row, `scale` tokens a character: '-' from the prefix cache, '=' prefilled,
// '.' not yet prefilled, '#' generated.
std::string Bar(const BatchRow& row, uint64_t scale) {
  const auto characters = [scale](uint64_t tokens) { return (tokens + scale - 1) / scale; };
  const size_t cached = characters(row.cached_tokens);
  const size_t prefilled = std::max(cached, characters(row.prefilled_tokens));
  const size_t prompt = std::max(prefilled, characters(row.prompt_tokens));
  const size_t all = characters(row.prompt_tokens + row.generated_tokens);
  std::string bar = std::string(cached, '-') + std::string(prefilled - cached, '=');
  bar += std::string(prompt - prefilled, '.');
  return bar + std::string(std::max(all, prompt) - prompt, '#');
}

}  // namespace

void BatchView::Take(const v1::WatchStepsResponse& response) {
  steps_status_ = absl::OkStatus();
  num_dropped_ += response.num_dropped();
  for (const v1::Step& step : response.steps()) {
    batch_.Take(step);
    last_step_ = step.number();
    recent_.push_back({TimeOf(step.start_time()), DurationOf(step.duration())});
  }
  while (!recent_.empty() &&
         (recent_.size() > kMaxRecent || recent_.back().start - recent_.front().start > kRecent)) {
    recent_.pop_front();
  }
}

void BatchView::Take(const v1::WatchLoadResponse& load) {
  if (load_.has_value() && load_->incarnation() != load.incarnation()) batch_.Clear();
  load_status_ = absl::OkStatus();
  load_ = load;
  if (load.running_requests() == 0 && load.waiting_requests() == 0) batch_.Leave();
}

void BatchView::LoseSteps(const absl::Status& why) {
  steps_status_ = why;
  batch_.Clear();
  recent_.clear();
  last_step_ = 0;
}

void BatchView::LoseLoad(const absl::Status& why) { load_status_ = why; }

std::string BatchView::StepTimes() const {
  if (recent_.empty()) return "step -";
  std::vector<absl::Duration> times;
  for (const StepTime& step : recent_) times.push_back(step.duration);
  const auto middle = times.begin() + static_cast<int64_t>((times.size() - 1) / 2);
  std::nth_element(times.begin(), middle, times.end());
  return absl::StrCat(
      "step ", FormatSeconds(absl::ToDoubleSeconds(*middle)), ", longest ",
      FormatSeconds(absl::ToDoubleSeconds(*std::max_element(times.begin(), times.end()))));
}

std::string BatchView::Header(const std::string& address) const {
  if (!load_status_.ok() || !load_.has_value()) {
    const std::string why =
        load_status_.ok() ? "connecting" : "UNREACHABLE  " + DescribeError(load_status_);
    return absl::StrCat(PlainText(address, kMaxCell), "  ", PlainText(why, 200), "\n\n");
  }
  std::string state = v1::WorkerState_Name(load_->state());
  state = state.empty() ? "?" : state.substr(std::string("WORKER_STATE_").size());
  const double used = load_->total_kv_blocks() == 0
                          ? 0
                          : static_cast<double>(load_->used_kv_blocks()) / load_->total_kv_blocks();
  std::string text = absl::StrCat(PlainText(load_->worker(), kMaxCell), "  ",
                                  PlainText(load_->model(), kMaxCell), "  ", state);
  if (!steps_status_.ok()) {
    absl::StrAppend(&text, "  steps: ", PlainText(DescribeError(steps_status_), 200));
  } else {
    absl::StrAppend(&text, "  step ", last_step_, "  ", StepTimes());
  }
  if (num_dropped_ > 0) absl::StrAppend(&text, "  ", num_dropped_, " steps not seen");
  const auto rate = [](float tokens) {
    return FormatCount(std::floor(std::clamp(tokens, 0.0f, 1e9f) + 0.5f));
  };
  absl::StrAppend(&text, "\nKV ", ProgressBar(used, 20), " of ", load_->total_kv_blocks(),
                  "  running ", load_->running_requests(), "  waiting ", load_->waiting_requests(),
                  "  prompt ", rate(load_->prefill_tokens_per_second()), " tok/s  generated ",
                  rate(load_->decode_tokens_per_second()), " tok/s\n");
  return text;
}

std::string BatchView::Draw(const std::string& address, size_t width, size_t height) const {
  const std::vector<BatchRow>& rows = batch_.rows();
  size_t id = kShortestId;
  uint64_t longest = 1;
  for (const BatchRow& row : rows) {
    id = std::max(id, row.name.size());
    longest = std::max(longest, row.prompt_tokens + row.generated_tokens);
  }
  id = std::min(id, kLongestId);
  constexpr char kLine[] = "%4s  %-*s  %13s  %9s  %-14s  %s";
  const size_t fixed = 4 + 2 + id + 2 + 13 + 2 + 9 + 2 + 14 + 2;
  const size_t bar = width > fixed + 10 ? std::min<size_t>(width - fixed, 120) : 10;
  uint64_t scale = 1;
  while (longest / scale + 3 > bar) scale *= 2;  // Each part of a bar is rounded up.

  std::vector<std::string> lines;
  const std::string header = Header(address);
  const size_t first = header.find('\n');
  lines.push_back(header.substr(0, first));
  lines.push_back(header.substr(first + 1, header.find('\n', first + 1) - first - 1));
  if (!rows.empty()) {
    lines.push_back(absl::StrFormat(kLine, "ROW", static_cast<int>(id), "REQUEST", "PROMPT",
                                    "GENERATED", "STATE",
                                    absl::StrCat("-cached =prefilled #generated, ", scale,
                                                 scale == 1 ? " token each" : " tokens each")));
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    const BatchRow& row = rows[i];
    if (lines.size() + 1 >= height && i + 1 < rows.size()) {
      lines.push_back(absl::StrCat("      ", rows.size() - i, " more rows"));
      break;
    }
    lines.push_back(
        absl::StrFormat(kLine, absl::StrCat(i + 1), static_cast<int>(id), row.name.substr(0, id),
                        absl::StrCat(row.prefilled_tokens, "/", row.prompt_tokens),
                        absl::StrCat(row.generated_tokens), StateOf(row), Bar(row, scale)));
  }
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), height); ++i) {
    std::string line = PlainText(lines[i], width);
    while (!line.empty() && line.back() == ' ') line.pop_back();
    text += line + "\n";
  }
  return text;
}

}  // namespace continuo::cli
