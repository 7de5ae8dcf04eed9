// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_request.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/kserve/call/infer_tensor.h"
#include "services/gateway/openai/json/error_json.h"
#include "services/gateway/openai/json/json_fields.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using openai::Json;
using protocol::FieldError;

constexpr char kPrompt[] = "prompt";
constexpr char kStreaming[] = "streaming";
constexpr char kExcludesInput[] = "exclude_input_in_output";
constexpr char kReturnsFinishReason[] = "return_finish_reason";
constexpr char kReturnsNumInputTokens[] = "return_num_input_tokens";
constexpr char kReturnsNumOutputTokens[] = "return_num_output_tokens";
constexpr char kStopWords[] = "stop_words";
constexpr char kRandomSeed[] = "random_seed";
constexpr std::string_view kInputs[] = {kTextInput,
                                        kInputIds,
                                        kSamplingParameters,
                                        kStream,
                                        kStreaming,
                                        kExcludesInput,
                                        kReturnsFinishReason,
                                        kReturnsNumInputTokens,
                                        kReturnsNumOutputTokens,
                                        kStopWords,
                                        kRandomSeed};

absl::Status SetMember(std::string_view name, Json value, Json* body) {
  // These are the request's own.
  if (name == kPrompt || name == "model" || name == "echo" || name == "stream_options") {
    return FieldError(name, "is not supported; the prompt is text_input or input_ids");
  }
  if (!body->emplace(std::string(name), std::move(value)).second) {
    return FieldError(openai::ShowName(name), "is there twice");
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> ValueOf(const std::string& name, const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return parameter.int64_param();
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    case inference::InferParameter::kDoubleParam:
      if (!std::isfinite(parameter.double_param()))
        return FieldError(openai::ShowName(name), "is not finite");
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      return parameter.uint64_param();
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return FieldError(openai::ShowName(name), "has no value");
}

absl::StatusOr<Json> OnlyElement(std::string_view name, Json elements) {
  if (elements.size() != 1) {
    return FieldError(std::string(name),
                      absl::StrCat("has ", elements.size(), " elements, and has to have one"));
  }
  return std::move(elements.front());
}

absl::StatusOr<bool> OnlyBool(std::string_view name, Json elements) {
  ASSIGN_OR_RETURN(const Json element, OnlyElement(name, std::move(elements)));
  if (!element.is_boolean()) return FieldError(std::string(name), "is no BOOL");
  return element.get<bool>();
}

// Reads the tensors into a call and the body of a completion.
class TensorReader {
 public:
  TensorReader(InferCall* call, Json* body) : call_(*call), body_(*body) {}

  absl::Status Add(const std::string& name, Json elements) {
    if (name == kTextInput) return AddText(std::move(elements));
    if (name == kInputIds) return AddIds(std::move(elements));
    if (name == kSamplingParameters) return AddSampling(std::move(elements));
    if (name == kStream || name == kStreaming) return Set(name, elements, &call_.stream);
    if (name == kExcludesInput) {
      excludes_input_ = true;
      return Set(name, elements, &*excludes_input_);
    }
    if (name == kReturnsFinishReason) return Set(name, elements, &call_.has_finish_reason);
    if (name == kReturnsNumInputTokens) return Set(name, elements, &call_.has_num_input_tokens);
    if (name == kReturnsNumOutputTokens) {
      return Set(name, elements, &call_.has_num_output_tokens);
    }
    if (name == kStopWords) return SetMember("stop", std::move(elements), &body_);
    const std::string_view member = name == kRandomSeed ? std::string_view("seed") : name;
    if (elements.size() != 1) return SetMember(member, std::move(elements), &body_);
    return SetMember(member, std::move(elements.front()), &body_);
  }

  absl::Status End() {
    if (!prompt_.has_value()) return FieldError(kTextInput, "is missing, and so is input_ids");
    if (excludes_input_.has_value() && !*excludes_input_) {
      if (!prompt_->is_string()) {
        return FieldError(kExcludesInput, "has to be true where the prompt is input_ids");
      }
      call_.echo = prompt_->get<std::string>();
    }
    body_[kPrompt] = *std::move(prompt_);
    return absl::OkStatus();
  }

 private:
  // Sets one of the call's own settings, which may have two names.
  absl::Status Set(const std::string& name, Json elements, bool* value) {
    if (!set_.insert(value).second) return FieldError(name, "is there twice");
    ASSIGN_OR_RETURN(*value, OnlyBool(name, std::move(elements)));
    return absl::OkStatus();
  }

  absl::Status SetPrompt(const char* name, Json prompt) {
    if (prompt_.has_value()) return FieldError(name, "is a second prompt");
    prompt_ = std::move(prompt);
    return absl::OkStatus();
  }

  absl::Status AddText(Json elements) {
    ASSIGN_OR_RETURN(Json text, OnlyElement(kTextInput, std::move(elements)));
    if (!text.is_string()) return FieldError(kTextInput, "is no BYTES");
    return SetPrompt(kTextInput, std::move(text));
  }

  absl::Status AddIds(Json elements) {
    for (const Json& id : elements) {
      if (!id.is_number_integer()) return FieldError(kInputIds, "are no integers");
    }
    return SetPrompt(kInputIds, std::move(elements));
  }

  absl::Status AddSampling(Json elements) {
    ASSIGN_OR_RETURN(const Json text, OnlyElement(kSamplingParameters, std::move(elements)));
    if (!text.is_string()) return FieldError(kSamplingParameters, "is no BYTES");
    if (std::exchange(has_sampling_, true))
      return FieldError(kSamplingParameters, "is there twice");
    const absl::StatusOr<Json> members = openai::ParseObject(text.get_ref<const std::string&>());
    if (!members.ok()) {
      return FieldError(kSamplingParameters, std::string(members.status().message()));
    }
    for (const auto& [name, value] : members->items()) {
      RETURN_IF_ERROR(SetMember(name, value, &body_));
    }
    return absl::OkStatus();
  }

  InferCall& call_;
  Json& body_;
  std::optional<Json> prompt_;
  std::optional<bool> excludes_input_;
  bool has_sampling_ = false;
  absl::flat_hash_set<const bool*> set_;  // by Set
};

// Chooses the outputs that are listed.
absl::Status ReadOutputs(const std::vector<std::string>& outputs, InferCall* call) {
  if (outputs.empty()) return absl::OkStatus();
  call->has_text = call->has_finish_reason = false;
  call->has_num_input_tokens = call->has_num_output_tokens = false;
  for (const std::string& name : outputs) {
    if (name == kTextOutput) {
      call->has_text = true;
    } else if (name == kFinishReason) {
      call->has_finish_reason = true;
    } else if (name == kNumInputTokens) {
      call->has_num_input_tokens = true;
    } else if (name == kNumOutputTokens) {
      call->has_num_output_tokens = true;
    } else {
      return FieldError("outputs",
                        absl::StrCat("has \"", openai::ShowName(name), "\", which no model gives"));
    }
  }
  return absl::OkStatus();
}

// Refuses what the body asks of an answer and this protocol has no place for.
absl::Status CheckForm(const openai::AnswerForm& form, bool stream) {
  if (form.logprobs) return FieldError("logprobs", "is not supported: no output has them");
  if (form.prompt_logprobs) return FieldError("prompt_logprobs", "is not supported");
  if (form.token_ids) return FieldError("return_token_ids", "is not supported");
  if (form.stream) return FieldError(kStream, "is an input of its own");
  if (stream && form.num_sequences > 1) {
    return FieldError("n", "has to be 1 with stream");
  }
  return absl::OkStatus();
}

}  // namespace

bool IsInput(std::string_view name) {
  return std::ranges::find(kInputs, name) != std::end(kInputs);
}

absl::StatusOr<InferCall> ReadInfer(InferMessage message) {
  if (!message.version.empty() && message.version != kVersion) {
    return absl::NotFoundError("each model has the version 1 alone");
  }
  if (message.id.size() > kMaxClientIdBytes) {
    return FieldError("id", absl::StrCat("has over ", kMaxClientIdBytes, " bytes"));
  }
  InferCall call;
  call.id = std::move(message.id);
  Json body = Json::object();
  body["model"] = std::move(message.model);
  TensorReader reader(&call, &body);
  for (InferMessage::Input& input : message.inputs) {
    RETURN_IF_ERROR(reader.Add(input.name, std::move(input.elements)));
  }
  for (auto& [name, value] : message.parameters.items()) {
    if (name != kWantsFinal) {
      RETURN_IF_ERROR(SetMember(name, std::move(value), &body));
    } else if (value.is_boolean()) {
      call.wants_final = value.get<bool>();
    } else {
      return FieldError(kWantsFinal, "is neither true nor false");
    }
  }
  RETURN_IF_ERROR(reader.End());
  RETURN_IF_ERROR(ReadOutputs(message.outputs, &call));
  ASSIGN_OR_RETURN(openai::ParsedCall parsed,
                   openai::ParseCall(openai::Endpoint::kCompletions, body.dump()));
  RETURN_IF_ERROR(CheckForm(parsed.form, call.stream));
  if (parsed.requests.size() != 1) return FieldError(kInputIds, "is more than one prompt");
  call.names = std::move(parsed.form.names);
  call.request = std::move(parsed.requests.front());
  if (call.stream) call.request.mutable_output()->set_progress(call.has_num_input_tokens);
  return call;
}

std::string IdForErrors(const inference::ModelInferRequest& request) {
  return request.id().size() <= kMaxClientIdBytes ? request.id() : "";
}

absl::StatusOr<InferCall> ReadInferRequest(const inference::ModelInferRequest& request) {
  InferMessage message = {
      .model = request.model_name(), .version = request.model_version(), .id = request.id()};
  const bool is_raw = !request.raw_input_contents().empty();
  if (is_raw && request.raw_input_contents_size() != request.inputs_size()) {
    return FieldError("raw_input_contents", "are not as many as inputs");
  }
  int64_t left = kMaxElements;
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& tensor = request.inputs(i);
    if (!tensor.parameters().empty()) {
      return FieldError(openai::ShowName(tensor.name()), "has a parameter; none is known");
    }
    const TensorHead head = {.name = tensor.name(),
                             .datatype = tensor.datatype(),
                             .shape = {tensor.shape().begin(), tensor.shape().end()}};
    ASSIGN_OR_RETURN(Json elements, is_raw
                                        ? ElementsOfRaw(head, request.raw_input_contents(i), &left)
                                        : ElementsOf(head, tensor.contents(), &left));
    message.inputs.push_back({tensor.name(), std::move(elements)});
  }
  for (const auto& [name, parameter] : request.parameters()) {
    ASSIGN_OR_RETURN(message.parameters[name], ValueOf(name, parameter));
  }
  for (const auto& output : request.outputs()) {
    if (!output.parameters().empty()) {
      return FieldError(absl::StrCat("outputs.", openai::ShowName(output.name())),
                        "has a parameter; none is known");
    }
    message.outputs.push_back(output.name());
  }
  ASSIGN_OR_RETURN(InferCall call, ReadInfer(std::move(message)));
  call.is_raw = is_raw;
  if (!call.stream) call.request.mutable_output()->set_collect(true);
  return call;
}

absl::Status WithClientsName(const InferCall& call, const absl::Status& status) {
  const std::string field = protocol::FieldOf(status);
  if (field.empty()) return status;
  return openai::WithField(status, openai::ParamOf(call.names, field));
}

}  // namespace continuo::gateway::kserve
