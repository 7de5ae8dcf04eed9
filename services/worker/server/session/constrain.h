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

// Returns whether CompileConstraint compiles anything.
bool NeedsGrammar(const v1::GenerateRequest& request);

// The grammar that all answers to a request match.
struct AnswerGrammar {
  std::shared_ptr<const text::Grammar> grammar;  // null: answers are free
  std::string field;                             // the part of the request that it is from
};

// Compiles the request's constraint and that of its calls, which takes time. INVALID_ARGUMENT names
// the field, and in a schema the keyword.
absl::StatusOr<AnswerGrammar> CompileConstraint(const v1::GenerateRequest& request,
                                                const ServedModel& model);

// Returns whether text has a header of the model's format (harmony's final channel) in the answer
// to a request, which stands before what a constraint describes.
bool HasTextHeader(const v1::GenerateRequest& request, const ServedModel& model);

// Returns whether thoughts come before the answer to a request. `prompt_end` is the chat template's
// own text behind the last content.
Thoughts ThoughtsOf(const v1::GenerateRequest& request, std::string_view prompt_end,
                    const ServedModel& model);

// Returns a constraint for each sequence, at its beginning; none where answers are free.
absl::StatusOr<std::vector<std::shared_ptr<AnswerConstraint>>> MakeConstraints(
    const AnswerGrammar& grammar, Thoughts thoughts, int num_sequences, const ServedModel& model);

}  // namespace continuo::server
