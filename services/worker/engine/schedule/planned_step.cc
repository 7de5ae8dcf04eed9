// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/planned_step.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace continuo::engine {
namespace {

StepRecord::SequenceRow RowOf(const Sequence& s) {
  StepRecord::SequenceRow row;
  row.label = s.request->request.label;
  row.index = s.index;
  row.prompt_tokens = s.request->prompt_tokens();
  row.generated_tokens = static_cast<int>(s.answer.size());
  row.finish = s.finish;
  return row;
}

}  // namespace

void PlannedStep::Clear(uint64_t step_number, int64_t token_budget) {
  number = step_number;
  plan.Clear();
  scheduled.clear();
  load = {};
  max_tokens = token_budget;
  prefill_tenant = nullptr;
  preempted.clear();
}

void OrderDecodesFirst(PlannedStep& step) {
  const auto has_more = [](const ScheduledTokens& t) { return t.num_tokens + t.num_drafts > 1; };
  step.rest.clear();
  std::ranges::copy_if(step.scheduled, std::back_inserter(step.rest), has_more);
  std::erase_if(step.scheduled, has_more);
  step.scheduled.insert(step.scheduled.end(), step.rest.begin(), step.rest.end());
}

void Describe(const PlannedStep& step, StepRecord& record) {
  record.number = step.number;
  record.sequences.clear();
  const model::StepPlan& plan = step.plan.plan();
  for (size_t i = 0; i < step.scheduled.size(); ++i) {
    const ScheduledTokens& t = step.scheduled[i];
    const Sequence& s = *t.sequence;
    // A sequence that had finished before this step is not part of it for anybody.
    if (s.state == SequenceState::kFinished && s.finished_after < step.number) continue;
    StepRecord::SequenceRow row = RowOf(s);
    row.new_tokens = t.num_tokens + t.num_drafts;
    row.cached_tokens = plan.kv_len[i] - row.new_tokens;
    record.sequences.push_back(std::move(row));
  }
  for (const Sequence* s : step.preempted) {
    record.sequences.push_back(RowOf(*s));
    record.sequences.back().preempted = true;
  }
}

}  // namespace continuo::engine
