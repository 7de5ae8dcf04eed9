// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/run/plan_words.h"

#include "services/base/check.h"

namespace continuo::model {

void PlanWords::Begin(size_t part) {
  constexpr size_t kAligned = 4;  // of 16 bytes
  words_.resize((words_.size() + kAligned - 1) / kAligned * kAligned);
  parts_[part].begin = words_.size();
}

void PlanWords::Set(const StepPlan& plan, std::span<const int32_t> wanted_rows, int block_size,
                    const Padding& padding) {
  CONTINUO_CHECK(padding.columns >= plan.max_blocks);
  words_.clear();
  const auto add = [&](size_t part, std::span<const int32_t> words, int first, int step) {
    Begin(part);
    words_.insert(words_.end(), words.begin(), words.end());
    for (int i = 0; i < padding.num_sequences; ++i) words_.push_back(first + i * step);
    End(part);
  };
  const int rows = plan.num_rows();
  Begin(0);
  words_.insert(words_.end(), plan.token_ids.begin(), plan.token_ids.end());
  // Padding repeats tokens of the step, so that it reads no experts that the step does not use.
  for (int i = 0; i < padding.num_sequences; ++i) {
    words_.push_back(rows > 0 ? plan.token_ids[static_cast<size_t>(i % rows)] : 0);
  }
  End(0);
  add(1, plan.positions, 0, 0);
  add(2, plan.kv_slots, padding.spare_block * block_size, 0);
  add(3, plan.kv_len, 1, 0);
  add(4, plan.query_begin, rows + 1, 1);
  add(5, wanted_rows, rows, 1);
  parts_[7] = parts_[8] = {};
  if (!plan.state_from.empty()) {
    add(7, plan.state_from, -1, 0);
    add(8, plan.state_to, -1, 0);
  }
  parts_[9] = {};
  if (plan.is_mtp()) {
    CONTINUO_CHECK(padding.num_sequences == 0);
    add(9, plan.hidden_rows, 0, 0);
  }
  parts_[10] = {};
  if (has_token_types_) {
    Begin(10);
    words_.insert(words_.end(), plan.token_types.begin(), plan.token_types.end());
    words_.resize(parts_[10].begin + static_cast<size_t>(rows + padding.num_sequences), 0);
    End(10);
  }
  // The table is last, since it alone grows with the length of the sequences.
  Begin(6);
  const auto columns = static_cast<size_t>(padding.columns);
  const auto given = static_cast<size_t>(plan.max_blocks);
  for (size_t s = 0; s < plan.sequence_ids.size(); ++s) {
    const auto row = plan.block_tables.begin() + static_cast<std::ptrdiff_t>(s * given);
    words_.insert(words_.end(), row, row + static_cast<std::ptrdiff_t>(given));
    words_.insert(words_.end(), columns - given, -1);
  }
  for (int i = 0; i < padding.num_sequences; ++i) {
    words_.push_back(padding.spare_block);
    words_.insert(words_.end(), columns - 1, -1);
  }
  End(6);
}

}  // namespace continuo::model
