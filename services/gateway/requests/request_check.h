// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the gateway can say about a request without a tokenizer or a model: cheap, before any work.
// Workers check everything again.

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"

namespace continuo::gateway {

// From 1 to 128 printable ASCII characters; `field` names it in the error.
absl::Status CheckName(std::string_view field, std::string_view value);

// Whether a header's value that a client sent may be sent on: 1 to 1,024 printable ASCII
// characters. gRPC takes other bytes from a client, but not for sending.
bool IsForwardable(std::string_view value);

// INVALID_ARGUMENT names the first field that is out of the range the proto states.
absl::Status CheckGenerate(const v1::GenerateRequest& request);

// Prompt tokens: ids are counted, text as four bytes a token.
int64_t EstimatePromptTokens(const v1::GenerateRequest& request);

}  // namespace continuo::gateway
