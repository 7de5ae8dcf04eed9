// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// The part of a request's contract that depends on the served model; the other part is
// protocol/validate_request.h, which these functions call first. INVALID_ARGUMENT names the field
// and the limit. All functions are thread-safe.

// Checks everything of a request that can be judged without encoding its prompt; the continuation
// is left to replay.h. Returns NOT_FOUND for another model.
absl::Status ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model);

// The same for Embed. UNIMPLEMENTED where the model makes nothing of such inputs.
absl::Status ValidateEmbed(const v1::EmbedRequest& request, const ServedModel& model);

// Checks the conversation that is the field `path` of some request.
absl::Status ValidateConversation(std::string_view path, const v1::Conversation& conversation,
                                  const ServedModel& model);

// Returns NOT_FOUND unless `name` is that of the served model or empty.
absl::Status ValidateModelName(std::string_view name, const ServedModel& model);

// An id has to lie in the vocabulary of the model.
absl::Status ValidateToken(std::string_view field, uint64_t id, const ServedModel& model);

// INVALID_ARGUMENT, reason CONTEXT_TOO_LONG, for a prompt of `size` ("200 tokens"), in the words
// that client libraries look for.
absl::Status ContextTooLong(std::string_view field, std::string_view size,
                            const ServedModel& model);

// An encoded prompt has at least one token, all of the vocabulary, and no more than the context
// (reason CONTEXT_TOO_LONG). `field` is the part of the request that was encoded.
absl::Status ValidatePromptTokens(std::string_view field, const std::vector<int32_t>& prompt,
                                  const ServedModel& model);

// With output.collect, the largest answer that is possible has to fit
// protocol::kMaxUnsplitResponseBytes.
absl::Status ValidateCollect(const v1::GenerateRequest& request, size_t prompt_tokens,
                             int max_tokens, const ServedModel& model);

}  // namespace continuo::server
