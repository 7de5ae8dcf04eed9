// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"

namespace continuo::gateway::kserve {

// The elements of a tensor as a JSON array of booleans, numbers or texts. `raw` has them instead of
// the contents where it is not null. INVALID_ARGUMENT names the tensor: a datatype that is not
// known, a shape that is not that of the elements, a text that is not UTF-8.
absl::StatusOr<nlohmann::json> ElementsOf(
    const inference::ModelInferRequest::InferInputTensor& tensor, const std::string* raw);

// The bytes of a text in raw contents: its size as a number of four bytes, and itself. The text has
// less than 4 GiB.
void AppendRawText(const std::string& text, std::string* raw);

}  // namespace continuo::gateway::kserve
