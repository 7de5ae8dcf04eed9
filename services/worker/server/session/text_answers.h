// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// Answer Tokenize, GetTokenizer and Detokenize, with at most protocol::kMaxUnsplitResponseBytes.
// INVALID_ARGUMENT names the field and the limit, NOT_FOUND the model. `now` is the chat template's
// clock.
absl::StatusOr<v1::TokenizeResponse> AnswerTokenize(const v1::TokenizeRequest& request,
                                                    absl::Time now, const ServedModel& model);
absl::StatusOr<v1::GetTokenizerResponse> AnswerGetTokenizer(const v1::GetTokenizerRequest& request,
                                                            const ServedModel& model);
absl::StatusOr<v1::DetokenizeResponse> AnswerDetokenize(const v1::DetokenizeRequest& request,
                                                        const ServedModel& model);

}  // namespace continuo::server
