// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads the bodies of the Open Inference Protocol over HTTP, and of Triton's extensions to it:
// generate, and tensors as bytes. Pure functions. Sources: KServe's "Open Inference Protocol",
// section HTTP/REST; Triton's extensions "generate" and "binary tensor data".

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/gateway/kserve/call/infer_request.h"

namespace continuo::gateway::kserve {

// Which model a request is for.
struct ServedName {
  std::string model, version;  // an empty version stands for every one
};

// Which outputs come as bytes behind the JSON.
struct BinaryOutputs {
  bool by_default = false;
  std::vector<std::string> binary, json;  // those for which the request says it

  bool Has(std::string_view name) const;
};

struct HttpInferCall {
  InferCall call;
  BinaryOutputs binary;
};

// Reads a request of `infer`. Its JSON is the first `json_bytes` of the body, behind which tensors
// come as bytes; nullopt: all of it. Errors are those of ReadInfer; also INVALID_ARGUMENT for a
// request of several responses.
absl::StatusOr<HttpInferCall> ReadInferJson(const ServedName& name, std::string_view body,
                                            std::optional<uint64_t> json_bytes);

// Reads a request of `generate` or, with `stream`, of `generate_stream`: inputs and parameters are
// members of the object, or of its member `parameters`. Errors are those of ReadInfer.
absl::StatusOr<InferCall> ReadGenerateJson(const ServedName& name, std::string_view body,
                                           bool stream);

}  // namespace continuo::gateway::kserve
