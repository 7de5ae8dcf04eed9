// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/text/text_model.h"

namespace continuo::server {

// An encoded prompt.
struct EncodedPrompt {
  std::string field;     // the part of the request that it comes from
  std::string rendered;  // the text that was encoded; empty for token ids
  std::vector<int32_t> tokens;
  // The offset in `rendered` where a chat template's own text behind the last content begins.
  size_t template_end = 0;
};

// Renders the conversation at `field` of the request; `now` is the template's clock.
// INVALID_ARGUMENT names the field.
absl::StatusOr<text::RenderedChat> RenderConversation(const v1::Conversation& conversation,
                                                      std::string_view field, absl::Time now,
                                                      const text::TextModel& text);

// Renders and encodes the prompt of a valid request. Takes time that grows with the prompt. Text
// that cannot fit the context, because it has more bytes than that many of the longest tokens, is
// rejected without being encoded: INVALID_ARGUMENT, reason CONTEXT_TOO_LONG. Text that will be cut,
// or of whose bytes the tokenizer may drop some, may have protocol::kMaxTokenizeBytes at least.
absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::GenerateRequest& request, absl::Time now,
                                           const ServedModel& model);
// The same for a Tokenize request, whose limit is protocol::kMaxTokenizeBytes.
absl::StatusOr<EncodedPrompt> EncodePrompt(const v1::TokenizeRequest& request, absl::Time now,
                                           const ServedModel& model);

// Encodes the text that is the field `field` of some request, with the special tokens that the
// tokenizer adds by itself where `add_special`. Limits as above; `is_cut`: it will be cut.
absl::StatusOr<std::vector<int32_t>> EncodeText(const std::string& field, const std::string& text,
                                                bool add_special, bool is_cut,
                                                const ServedModel& model);

// Encodes two texts as the tokenizer joins them; the second is the field `field` of some request.
// Limits as above, of both together.
absl::StatusOr<text::EncodedPair> EncodeTextPair(const std::string& field, const std::string& first,
                                                 const std::string& second, bool is_cut,
                                                 const ServedModel& model);

// Encodes a chat whose text the field `field` of some request gives. Limits as above.
absl::StatusOr<std::vector<int32_t>> EncodeRendered(const std::string& field,
                                                    const text::RenderedChat& rendered, bool is_cut,
                                                    const ServedModel& model);

}  // namespace continuo::server
