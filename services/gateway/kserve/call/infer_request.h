// SPDX-License-Identifier: Apache-2.0
#pragma once

// Converts requests of the Open Inference Protocol to GenerateRequests. Pure functions.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "continuo/v1/inference.pb.h"
#include "inference/grpc_service.pb.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/gateway/openai/json/request_json.h"

namespace continuo::gateway::kserve {

// The names of tensors and parameters that mean something here.
inline constexpr char kTextInput[] = "text_input";
inline constexpr char kInputIds[] = "input_ids";
inline constexpr char kStream[] = "stream";
inline constexpr char kSamplingParameters[] = "sampling_parameters";
inline constexpr char kTextOutput[] = "text_output";
inline constexpr char kFinishReason[] = "finish_reason";
inline constexpr char kNumInputTokens[] = "num_input_tokens";
inline constexpr char kNumOutputTokens[] = "num_output_tokens";
inline constexpr char kWantsFinal[] = "triton_enable_empty_final_response";
inline constexpr char kIsFinal[] = "triton_final_response";

// The only version of every model.
inline constexpr char kVersion[] = "1";

// Each response repeats the id of its request, so that it is bounded.
inline constexpr size_t kMaxClientIdBytes = 1024;

// A generation as its request has it.
struct InferCall {
  v1::GenerateRequest request;
  // The form of its responses.
  std::string id;
  bool stream = false;
  bool is_raw = false;       // outputs are as raw_input_contents
  bool wants_final = false;  // an empty response ends the stream
  std::string echo;          // comes before the answer's text
  bool has_text = true, has_finish_reason = true;
  bool has_num_input_tokens = false, has_num_output_tokens = false;
  openai::ParamNames names;  // for errors
};

// A request in whatever form it came.
struct InferMessage {
  struct Input {
    std::string name;
    openai::Json elements;  // an array
  };

  std::string model, version, id;
  std::vector<Input> inputs;
  openai::Json parameters = openai::Json::object();
  std::vector<std::string> outputs;  // that are asked for; none: those that come by themselves
};

// Reads a request. The prompt is `text_input`, one text, or `input_ids`. All else is a member of
// the body of /v1/completions (docs/http.md): a tensor or parameter of that name, or a member of
// the JSON object in `sampling_parameters`. `stream` (or `streaming`), `exclude_input_in_output`
// and `return_…` say what the responses are like; Triton's `stop_words` and `random_seed` are known
// too. INVALID_ARGUMENT names the tensor or member that is wrong, unknown or missing; NOT_FOUND a
// version.
absl::StatusOr<InferCall> ReadInfer(InferMessage message);
// One that is no stream has one response.
absl::StatusOr<InferCall> ReadInferRequest(const inference::ModelInferRequest& request);

// The id by which an error names its request: none where it is too long.
std::string IdForErrors(const inference::ModelInferRequest& request);

// True if a tensor of this name has a meaning of its own; others are members of /v1/completions.
bool IsInput(std::string_view name);

// The same error, with the client's name of the field.
absl::Status WithClientsName(const InferCall& call, const absl::Status& status);

}  // namespace continuo::gateway::kserve
