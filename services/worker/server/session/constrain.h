// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/constraint/answer_constraint.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/text/grammar/grammar.h"

namespace continuo::server {

// Whether CompileConstraint compiles anything.
bool NeedsGrammar(const v1::GenerateRequest& request);

// What the answers to a request have to match.
struct AnswerGrammar {
  std::shared_ptr<const text::Grammar> grammar;  // null: nothing
  std::string field;                             // of the request, where it comes from
};

// Compiles it, which takes time. INVALID_ARGUMENT names the field, and in a schema the keyword.
absl::StatusOr<AnswerGrammar> CompileConstraint(const v1::GenerateRequest& request,
                                                const ServedModel& model);

// Whether thoughts come before the answer to a request. `prompt_end` is what the chat template
// wrote behind the last content.
Thoughts ThoughtsOf(const v1::GenerateRequest& request, std::string_view prompt_end,
                    const ServedModel& model);

// One for each sequence, at its beginning.
absl::StatusOr<std::vector<std::shared_ptr<AnswerConstraint>>> MakeConstraints(
    const AnswerGrammar& grammar, Thoughts thoughts, int num_sequences, const ServedModel& model);

}  // namespace continuo::server
