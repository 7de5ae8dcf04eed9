// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/server/session/served_model.h"

namespace continuo::server {

// A query and a document as the model reads them.
struct PairPrompt {
  std::vector<int32_t> tokens;
  std::vector<int32_t> types;  // as engine::Request::token_types
};

// Writes the pair of input `index` by the model's template, or as its tokenizer joins two texts
// where it has none, encodes it, and cuts the document as the request asks for. Errors name the
// field and the limit. Takes time that grows with the texts.
absl::StatusOr<PairPrompt> EncodePair(const v1::EmbedRequest& request, int index,
                                      const ServedModel& model);

}  // namespace continuo::server
