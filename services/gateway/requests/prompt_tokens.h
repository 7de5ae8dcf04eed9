// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// Estimates the tokens of a request's prompt without a tokenizer: ids are counted, text counts as
// four bytes a token. Thread-safe.
int64_t EstimatePromptTokens(const v1::GenerateRequest& request);
// The same of all inputs together.
int64_t EstimatePromptTokens(const v1::EmbedRequest& request);

}  // namespace continuo::gateway
