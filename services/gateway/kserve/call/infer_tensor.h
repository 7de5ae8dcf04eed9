// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "services/protocol/limits.h"

namespace continuo::gateway::kserve {

// A tensor of a request, without its elements.
struct TensorHead {
  std::string name, datatype;
  std::vector<int64_t> shape;
};

// The most elements that all tensors of a request have together.
inline constexpr int64_t kMaxElements = protocol::kMaxValues;

// The elements of a tensor as a JSON array of booleans, numbers or texts. INVALID_ARGUMENT names
// the tensor: a datatype that is not known, a shape that is not that of the elements, a text that
// is not UTF-8, a number that is not finite, more elements than `*left`, from which they are taken.
// Nothing is made of a tensor of a wrong size.
absl::StatusOr<nlohmann::json> ElementsOf(const TensorHead& head,
                                          const inference::InferTensorContents& contents,
                                          int64_t* left);
// The same for the elements as bytes: numbers are little-endian, and a text follows its size, a
// number of four bytes.
absl::StatusOr<nlohmann::json> ElementsOfRaw(const TensorHead& head, std::string_view raw,
                                             int64_t* left);
// The same for an array, which may be divided into arrays as the shape is.
absl::StatusOr<nlohmann::json> ElementsOfJson(const TensorHead& head, const nlohmann::json& data,
                                              int64_t* left);

// The bytes of an element in raw contents. The text has less than 4 GiB.
void AppendRawText(const std::string& text, std::string* raw);
void AppendRawNumber(uint32_t number, std::string* raw);

}  // namespace continuo::gateway::kserve
