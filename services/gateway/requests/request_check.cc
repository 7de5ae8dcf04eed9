// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/requests/request_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/protocol/error.h"

namespace continuo::gateway {
namespace {

constexpr int64_t kBytesPerToken = 4;

constexpr size_t kMaxModelBytes = 256;
constexpr uint32_t kMaxSequences = 128;

template <typename T>
absl::Status CheckRange(std::string_view field, T value, T min, T max) {
  if (value >= min && value <= max) return absl::OkStatus();  // never for a NaN
  return protocol::FieldError(field,
                              absl::StrCat("is ", value, ", must be from ", min, " to ", max));
}

// For intervals that are open below.
absl::Status CheckAbove(std::string_view field, float value, float above, float max) {
  if (value > above && value <= max) return absl::OkStatus();
  return protocol::FieldError(
      field, absl::StrCat("is ", value, ", must be above ", above, " and at most ", max));
}

absl::Status CheckCount(std::string_view field, int64_t count, int64_t max) {
  if (count <= max) return absl::OkStatus();
  return protocol::FieldError(field, absl::StrCat("has ", count, " entries, the limit is ", max));
}

absl::Status CheckSampling(const v1::Sampling& s) {
  if (s.has_temperature()) {
    RETURN_IF_ERROR(CheckRange("sampling.temperature", s.temperature(), 0.0f, 100.0f));
  }
  if (s.has_top_p()) RETURN_IF_ERROR(CheckAbove("sampling.top_p", s.top_p(), 0, 1));
  if (s.has_min_p()) RETURN_IF_ERROR(CheckRange("sampling.min_p", s.min_p(), 0.0f, 1.0f));
  if (s.has_num_sequences()) {
    RETURN_IF_ERROR(
        CheckRange<uint32_t>("sampling.num_sequences", s.num_sequences(), 1, kMaxSequences));
  }
  if (s.has_repetition_penalty()) {
    RETURN_IF_ERROR(CheckAbove("sampling.repetition_penalty", s.repetition_penalty(), 0, 2));
  }
  if (s.has_presence_penalty()) {
    RETURN_IF_ERROR(CheckRange("sampling.presence_penalty", s.presence_penalty(), -2.0f, 2.0f));
  }
  if (s.has_frequency_penalty()) {
    RETURN_IF_ERROR(CheckRange("sampling.frequency_penalty", s.frequency_penalty(), -2.0f, 2.0f));
  }
  return CheckCount("sampling.logit_bias", s.logit_bias_size(), 1024);
}

absl::Status CheckBytes(std::string_view field, const std::string& text, size_t max) {
  if (text.size() <= max) return absl::OkStatus();
  return protocol::FieldError(field,
                              absl::StrCat("has ", text.size(), " bytes, the limit is ", max));
}

absl::Status CheckConversation(const v1::Conversation& c) {
  RETURN_IF_ERROR(CheckCount("conversation.messages", c.messages_size(), 16384));
  RETURN_IF_ERROR(CheckCount("conversation.tools", c.tools_size(), 1024));
  return CheckBytes("conversation.template_arguments", c.template_arguments(), 65536);
}

absl::Status CheckReceived(const v1::GenerateResponse& received) {
  // Stands in for the model where that is left out.
  RETURN_IF_ERROR(CheckBytes("continuation.received.accepted.model", received.accepted().model(),
                             kMaxModelBytes));
  for (const v1::Delta& delta : received.deltas()) {
    RETURN_IF_ERROR(
        CheckRange<uint32_t>("continuation.received.deltas", delta.index(), 0, kMaxSequences - 1));
  }
  return absl::OkStatus();
}

absl::Status CheckStopping(const v1::Stopping& s) {
  RETURN_IF_ERROR(CheckCount("stopping.strings", s.strings_size(), 16));
  for (const std::string& text : s.strings()) {
    if (text.empty() || text.size() > 256) {
      return protocol::FieldError(
          "stopping.strings", absl::StrCat("one has ", text.size(), " bytes, must have 1 to 256"));
    }
  }
  return CheckCount("stopping.token_ids", s.token_ids_size(), 64);
}

}  // namespace

bool IsForwardable(std::string_view value) {
  return !value.empty() && value.size() <= 1024 &&
         std::ranges::all_of(value, [](char c) { return c >= 0x20 && c <= 0x7e; });
}

absl::Status CheckName(std::string_view field, std::string_view value) {
  if (value.empty() || value.size() > 128) {
    return protocol::FieldError(
        field, absl::StrCat("has ", value.size(), " characters, must have 1 to 128"));
  }
  if (!std::ranges::all_of(value, [](char c) { return c >= 0x20 && c <= 0x7e; })) {
    return protocol::FieldError(field, "has characters that are not printable ASCII");
  }
  return absl::OkStatus();
}

absl::Status CheckGenerate(const v1::GenerateRequest& request) {
  if (!request.request_id().empty()) {
    RETURN_IF_ERROR(CheckName("request_id", request.request_id()));
  }
  RETURN_IF_ERROR(CheckBytes("model", request.model(), kMaxModelBytes));
  RETURN_IF_ERROR(CheckReceived(request.continuation().received()));
  if (request.prompt_case() == v1::GenerateRequest::PROMPT_NOT_SET) {
    return protocol::FieldError("prompt", "is needed: text, token_ids or conversation");
  }
  RETURN_IF_ERROR(CheckConversation(request.conversation()));
  RETURN_IF_ERROR(CheckSampling(request.sampling()));
  RETURN_IF_ERROR(CheckStopping(request.stopping()));
  const v1::Output& output = request.output();
  RETURN_IF_ERROR(CheckRange<uint32_t>("output.logprobs", output.logprobs(), 0, 20));
  RETURN_IF_ERROR(CheckRange<uint32_t>("output.prompt_logprobs", output.prompt_logprobs(), 0, 20));
  if (output.collect() && output.progress()) {
    return protocol::FieldError("output.progress", "is not possible with output.collect");
  }
  return CheckRange<int32_t>("priority", request.priority(), -100, 100);
}

int64_t EstimatePromptTokens(const v1::GenerateRequest& request) {
  switch (request.prompt_case()) {
    case v1::GenerateRequest::kText:
      return static_cast<int64_t>(request.text().size()) / kBytesPerToken + 1;
    case v1::GenerateRequest::kTokenIds:
      return request.token_ids().ids_size();
    case v1::GenerateRequest::kConversation: {
      int64_t bytes = static_cast<int64_t>(request.conversation().template_arguments().size());
      for (const v1::ChatMessage& message : request.conversation().messages()) {
        bytes += static_cast<int64_t>(message.role().size() + message.content().size() +
                                      message.reasoning().size());
      }
      for (const v1::Tool& tool : request.conversation().tools()) {
        bytes += static_cast<int64_t>(tool.ByteSizeLong());
      }
      return bytes / kBytesPerToken + 1;
    }
    case v1::GenerateRequest::PROMPT_NOT_SET:
      break;
  }
  return 0;
}

}  // namespace continuo::gateway
