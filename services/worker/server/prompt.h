// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/text/text_model.h"

namespace continuo {

// A prompt as the model reads it.
struct EncodedPrompt {
  std::string field;     // which part of the request it was
  std::string rendered;  // what was encoded; empty for token ids
  std::vector<int32_t> tokens;
};

// Renders the conversation at `field` of the request; `now` is the template's clock.
// INVALID_ARGUMENT names the field.
absl::StatusOr<std::string> RenderConversation(const v1::Conversation& conversation,
                                               std::string_view field, absl::Time now,
                                               const TextModel& text);

// Renders and encodes the prompt of a valid request. Takes time that grows with the prompt.
absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::GenerateRequest& request, absl::Time now,
                                           const TextModel& text);
absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::TokenizeRequest& request, absl::Time now,
                                           const TextModel& text);

}  // namespace continuo
