// SPDX-License-Identifier: Apache-2.0
#include "services/cli/fleet/batch_rows.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "services/protocol/proto_time.h"

namespace continuo::cli {
namespace {

constexpr size_t kMaxName = 160;  // A server accepts ids of up to 128 bytes.

void Update(BatchRow& row, const v1::StepSequence& s) {
  const uint64_t in_cache = uint64_t{s.cached_tokens()} + s.new_tokens();
  row.prompt_tokens = s.prompt_tokens();
  row.prefilled_tokens = std::min<uint64_t>(in_cache, s.prompt_tokens());
  row.generated_tokens = s.generated_tokens();
  row.finish = s.finish_reason();
  if (row.finish != v1::FINISH_REASON_UNSPECIFIED) {
    row.state = BatchRow::State::kEnded;
  } else if (s.preempted()) {
    row.state = BatchRow::State::kPreempted;
  } else if (in_cache < s.prompt_tokens()) {
    row.state = BatchRow::State::kPrefill;
  } else {
    row.state = BatchRow::State::kGenerating;
  }
}

}  // namespace

std::string FinishName(v1::FinishReason reason) {
  const std::string name = v1::FinishReason_Name(reason);
  if (name.empty()) return absl::StrCat("reason ", static_cast<int>(reason));
  return absl::AsciiStrToLower(name.substr(std::string("FINISH_REASON_").size()));
}

std::string PlainText(std::string_view text, size_t width) {
  std::string result(text.substr(0, width));
  for (char& c : result) {
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  }
  return result;
}

absl::Time TimeOf(const google::protobuf::Timestamp& time) { return protocol::FromProto(time); }

absl::Duration DurationOf(const google::protobuf::Duration& duration) {
  return std::clamp(protocol::FromProto(duration), absl::ZeroDuration(), absl::Hours(24));
}

size_t BatchRows::RowOf(const Key& key, uint64_t step) {
  const auto found = row_of_.find(key);
  if (found != row_of_.end()) return found->second;
  size_t row = 0;
  // The row of a sequence that ends in this very step shows its end.
  const auto is_free = [&](size_t at) {
    const bool ends = rows_[at].state == BatchRow::State::kEnded && seen_[at].step == step;
    return rows_[at].free() && !ends;
  };
  while (row < rows_.size() && !is_free(row)) ++row;
  if (row == kMaxRows) return kNoRow;
  if (row == rows_.size()) {
    rows_.emplace_back();
    seen_.emplace_back();
  } else {
    const auto last = row_of_.find(seen_[row].key);
    if (last != row_of_.end() && last->second == row) row_of_.erase(last);
    rows_[row] = BatchRow();
  }
  row_of_[key] = row;
  seen_[row].key = key;
  const auto& [id, index, nth] = key;
  rows_[row].name = PlainText(id, kMaxName);
  if (index > 0) absl::StrAppend(&rows_[row].name, "#", index);
  return row;
}

std::vector<size_t> BatchRows::Take(const v1::Step& step) {
  const absl::Time time = TimeOf(step.start_time());
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].free() || step.number() < seen_[i].step + kMissedSteps) continue;
    const bool preempted = rows_[i].state == BatchRow::State::kPreempted;
    if (time - seen_[i].time >= (preempted ? kPreemptedFor : kMissedFor)) {
      rows_[i].state = BatchRow::State::kGone;
    }
  }
  std::vector<size_t> result;
  std::map<std::pair<std::string, uint32_t>, int> num_such;
  for (const v1::StepSequence& s : step.sequences()) {
    const std::string id = s.request_id().substr(0, kMaxName);
    const Key key = {id, s.index(), num_such[{id, s.index()}]++};
    const auto found = row_of_.find(key);
    const bool known =
        found != row_of_.end() && rows_[found->second].state != BatchRow::State::kEnded;
    // A sequence that follows an ended one is another request with the same id.
    if (found != row_of_.end() && !known) row_of_.erase(found);
    const size_t row = RowOf(key, step.number());
    result.push_back(row);
    if (row == kNoRow) continue;
    if (!known) rows_[row].cached_tokens = std::min(s.cached_tokens(), s.prompt_tokens());
    seen_[row].step = step.number();
    seen_[row].time = time;
    Update(rows_[row], s);
  }
  return result;
}

void BatchRows::Leave() {
  for (BatchRow& row : rows_) {
    if (!row.free()) row.state = BatchRow::State::kGone;
  }
}

size_t BatchRows::num_running() const {
  return static_cast<size_t>(
      std::count_if(rows_.begin(), rows_.end(), [](const BatchRow& row) { return row.running(); }));
}

}  // namespace continuo::cli
