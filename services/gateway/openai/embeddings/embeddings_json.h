// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "continuo/v1/inference.pb.h"

namespace continuo::gateway::openai {

// Appends the shortest number that reads as the same float32, or null if that is not finite.
void AppendFloat(float value, std::string* json);

// The most bytes that EmbeddingsJson takes for so many vectors, beside the model's name.
size_t EmbeddingsJsonBytes(size_t num_vectors, size_t dimensions, bool base64);

// The answer of /v1/embeddings: the vectors of the responses, one after the other, with the
// shortest digits that read as the same float32, or as base64 of the values, little-endian.
std::string EmbeddingsJson(const std::vector<v1::EmbedResponse>& parts, const std::string& model,
                           bool base64);

}  // namespace continuo::gateway::openai
