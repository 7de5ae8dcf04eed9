// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// Limits of what a client may ask for, as the proto's comments state them.
inline constexpr int kMaxMessages = 16384;
inline constexpr size_t kMaxTemplateArgumentsBytes = 65536;
inline constexpr size_t kMaxModelBytes = 256;
inline constexpr uint32_t kMaxSequences = 128;
inline constexpr int kMaxLogitBiases = 1024;
inline constexpr int kMaxStopStrings = 16;
inline constexpr int kMaxStopStringBytes = 256;
inline constexpr int kMaxStopIds = 64;
inline constexpr int kMaxLogprobs = 20;
inline constexpr int kMaxIdBytes = 128;
// Of one response, and of one that collects everything.
inline constexpr size_t kMaxResponseBytes = 1 << 20;
inline constexpr size_t kMaxCollectedBytes = 3 << 20;

// Everything of a request that can be judged without encoding its prompt; the continuation is
// left to replay.h. INVALID_ARGUMENT names the field and the limit, NOT_FOUND the model.
absl::Status ValidateGenerate(const v1::GenerateRequest& request, const ServedModel& model);

// The same for a conversation at `path` of another request.
absl::Status ValidateConversation(const v1::Conversation& conversation, std::string_view path,
                                  const ServedModel& model);

// "" is the one model that is served.
absl::Status ValidateModelName(std::string_view name, const ServedModel& model);

// 1 to 128 printable ASCII characters; `field` is what the error names.
absl::Status ValidateId(std::string_view id, std::string_view field);

// INVALID_ARGUMENT names the first field, anywhere below but in a continuation, that this program
// does not know.
absl::Status RefuseUnknownFields(const google::protobuf::Message& message);

// Of an encoded prompt: at least one token, all of the vocabulary, no more than the context
// (reason CONTEXT_TOO_LONG). `field` is the part of the prompt that was encoded.
absl::Status ValidatePromptTokens(const std::vector<int32_t>& prompt, std::string_view field,
                                  const ServedModel& model);

// With output.collect: the most bytes that the answer can take are within kMaxCollectedBytes.
absl::Status ValidateCollect(const v1::GenerateRequest& request, size_t prompt_tokens,
                             int max_tokens, const ServedModel& model);

}  // namespace continuo::server
