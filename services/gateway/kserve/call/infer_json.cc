// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/infer_json.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/gateway/kserve/call/infer_tensor.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using openai::Json;
using protocol::FieldError;

constexpr std::string_view kBinaryDataSize = "binary_data_size";
constexpr std::string_view kBinaryDataOutput = "binary_data_output";
constexpr std::string_view kBinaryData = "binary_data";
constexpr char kParameters[] = "parameters";

absl::Status Unknown(std::string_view where, std::string_view name) {
  return FieldError(
      absl::StrCat(std::string(where), where.empty() ? "" : ".", openai::ShowName(name)),
      "is not known");
}

absl::StatusOr<std::string> TextOf(std::string_view where, const Json& value) {
  if (!value.is_string()) return FieldError(where, "is no string");
  return value.get<std::string>();
}

absl::StatusOr<bool> BoolOf(std::string_view where, const Json& value) {
  if (!value.is_boolean()) return FieldError(where, "is neither true nor false");
  return value.get<bool>();
}

absl::Status CheckKind(std::string_view where, const Json& value, Json::value_t kind) {
  if (value.type() == kind) return absl::OkStatus();
  return FieldError(where, kind == Json::value_t::array ? "is no array" : "is no object");
}

absl::StatusOr<std::vector<int64_t>> ShapeOf(std::string_view where, const Json& value) {
  RETURN_IF_ERROR(CheckKind(where, value, Json::value_t::array));
  std::vector<int64_t> shape;
  for (const Json& size : value) {
    // Larger ones than int64_t count as negative, and no tensor has a negative size.
    if (!size.is_number_integer()) return FieldError(where, "has a size that is no integer");
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// The bytes behind the JSON, from which tensors take theirs in their order.
class BinaryData {
 public:
  explicit BinaryData(std::string_view data) : data_(data) {}

  absl::StatusOr<std::string_view> Take(std::string_view where, const Json& size) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > data_.size()) {
      return FieldError(
          where, absl::StrCat("is no number of bytes up to the ", data_.size(), " that are left"));
    }
    const std::string_view taken = data_.substr(0, size.get<uint64_t>());
    data_.remove_prefix(taken.size());
    return taken;
  }

  absl::Status End() const {
    if (data_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the body has ", data_.size(), " bytes behind those of its tensors"));
  }

 private:
  std::string_view data_;
};

// As many elements as `*left` may come.
absl::StatusOr<InferMessage::Input> ReadInput(const Json& input, BinaryData* binary,
                                              int64_t* left) {
  RETURN_IF_ERROR(CheckKind("inputs", input, Json::value_t::object));
  const auto name = input.find("name");
  if (name == input.end()) return FieldError("inputs", "has a tensor without a name");
  TensorHead head;
  ASSIGN_OR_RETURN(head.name, TextOf("inputs.name", *name));
  const std::string where = absl::StrCat("inputs.", openai::ShowName(head.name));
  const Json* data = nullptr;
  std::optional<std::string_view> raw;
  bool has_shape = false;
  for (const auto& [member, value] : input.items()) {
    const std::string at = absl::StrCat(where, ".", member);
    if (member == "shape") {
      has_shape = true;
      ASSIGN_OR_RETURN(head.shape, ShapeOf(at, value));
    } else if (member == "datatype") {
      ASSIGN_OR_RETURN(head.datatype, TextOf(at, value));
    } else if (member == "data") {
      data = &value;
    } else if (member == kParameters) {
      RETURN_IF_ERROR(CheckKind(at, value, Json::value_t::object));
      for (const auto& [parameter, size] : value.items()) {
        if (parameter != kBinaryDataSize) return Unknown(at, parameter);
        ASSIGN_OR_RETURN(raw, binary->Take(absl::StrCat(at, ".", parameter), size));
      }
    } else if (member != "name") {
      return Unknown(where, member);
    }
  }
  if (!has_shape) return FieldError(openai::ShowName(head.name), "has no shape");
  if ((data != nullptr) == raw.has_value()) {
    return FieldError(openai::ShowName(head.name), "has to have either data or binary_data_size");
  }
  ASSIGN_OR_RETURN(Json elements, raw.has_value() ? ElementsOfRaw(head, *raw, left)
                                                  : ElementsOfJson(head, *data, left));
  return InferMessage::Input{std::move(head.name), std::move(elements)};
}

absl::Status ReadOutput(const Json& output, InferMessage* message, BinaryOutputs* binary) {
  RETURN_IF_ERROR(CheckKind("outputs", output, Json::value_t::object));
  const auto found = output.find("name");
  if (found == output.end()) return FieldError("outputs", "has a tensor without a name");
  ASSIGN_OR_RETURN(const std::string name, TextOf("outputs.name", *found));
  const std::string where = absl::StrCat("outputs.", openai::ShowName(name));
  for (const auto& [member, value] : output.items()) {
    if (member == "name") continue;
    if (member != kParameters) return Unknown(where, member);
    RETURN_IF_ERROR(CheckKind(where, value, Json::value_t::object));
    for (const auto& [parameter, setting] : value.items()) {
      if (parameter != kBinaryData) return Unknown(where, parameter);
      ASSIGN_OR_RETURN(const bool is_binary, BoolOf(absl::StrCat(where, ".", parameter), setting));
      (is_binary ? binary->binary : binary->json).push_back(name);
    }
  }
  message->outputs.push_back(name);
  return absl::OkStatus();
}

absl::Status CheckOneResponse(const InferCall& call, std::string_view instead) {
  if (!call.stream) return absl::OkStatus();
  return FieldError(kStream,
                    absl::StrCat("gives several responses; there is ", std::string(instead)));
}

absl::Status CheckNoFinal(const Json& parameters) {
  if (!parameters.contains(kWantsFinal)) return absl::OkStatus();
  return FieldError(kWantsFinal, "is for ModelStreamInfer alone");
}

}  // namespace

bool BinaryOutputs::Has(std::string_view name) const {
  if (std::ranges::find(json, name) != json.end()) return false;
  return by_default || std::ranges::find(binary, name) != binary.end();
}

absl::StatusOr<HttpInferCall> ReadInferJson(const ServedName& name, std::string_view body,
                                            std::optional<uint64_t> json_bytes) {
  if (json_bytes.value_or(0) > body.size()) {
    return absl::InvalidArgumentError("Inference-Header-Content-Length is beyond the body");
  }
  const std::string_view text = body.substr(0, json_bytes.value_or(body.size()));
  ASSIGN_OR_RETURN(Json request, openai::ParseObject(text));
  BinaryData binary_data(body.substr(text.size()));
  InferMessage message = {.model = name.model, .version = name.version};
  HttpInferCall call;
  int64_t elements_left = kMaxElements;
  for (auto& [member, value] : request.items()) {
    if (member == "id") {
      ASSIGN_OR_RETURN(message.id, TextOf(member, value));
    } else if (member == "model_name") {
      // kserve's client repeats it.
      if (value != name.model) return FieldError(member, "is another than the path's");
    } else if (member == kParameters) {
      RETURN_IF_ERROR(CheckKind(member, value, Json::value_t::object));
      message.parameters = std::move(value);
    } else if (member == "inputs") {
      RETURN_IF_ERROR(CheckKind(member, value, Json::value_t::array));
      for (const Json& input : value) {
        ASSIGN_OR_RETURN(InferMessage::Input read, ReadInput(input, &binary_data, &elements_left));
        message.inputs.push_back(std::move(read));
      }
    } else if (member == "outputs") {
      RETURN_IF_ERROR(CheckKind(member, value, Json::value_t::array));
      for (const Json& output : value) {
        RETURN_IF_ERROR(ReadOutput(output, &message, &call.binary));
      }
    } else {
      return Unknown("", member);
    }
  }
  RETURN_IF_ERROR(binary_data.End());
  RETURN_IF_ERROR(CheckNoFinal(message.parameters));
  if (const auto all = message.parameters.find(kBinaryDataOutput);
      all != message.parameters.end()) {
    ASSIGN_OR_RETURN(call.binary.by_default, BoolOf(kBinaryDataOutput, *all));
    message.parameters.erase(all);
  }
  ASSIGN_OR_RETURN(call.call, ReadInfer(std::move(message)));
  RETURN_IF_ERROR(CheckOneResponse(call.call, "generate_stream"));
  return call;
}

absl::StatusOr<InferCall> ReadGenerateJson(const ServedName& name, std::string_view body,
                                           bool stream) {
  ASSIGN_OR_RETURN(Json request, openai::ParseObject(body));
  InferMessage message = {.model = name.model, .version = name.version};
  bool says_stream = false;
  const auto add = [&](const std::string& member, Json value) -> absl::Status {
    says_stream = says_stream || member == kStream || member == "streaming";
    if (IsInput(member)) {
      if (!value.is_array()) value = Json::array({std::move(value)});
      message.inputs.push_back({member, std::move(value)});
    } else if (!message.parameters.emplace(member, std::move(value)).second) {
      return FieldError(openai::ShowName(member), "is there twice");
    }
    return absl::OkStatus();
  };
  for (auto& [member, value] : request.items()) {
    if (member == "id") {
      ASSIGN_OR_RETURN(message.id, TextOf(member, value));
    } else if (member == kParameters) {
      RETURN_IF_ERROR(CheckKind(member, value, Json::value_t::object));
      for (auto& [parameter, setting] : value.items()) {
        RETURN_IF_ERROR(add(parameter, std::move(setting)));
      }
    } else {
      RETURN_IF_ERROR(add(member, std::move(value)));
    }
  }
  RETURN_IF_ERROR(CheckNoFinal(message.parameters));
  if (stream && !says_stream) message.inputs.push_back({kStream, Json::array({true})});
  ASSIGN_OR_RETURN(InferCall call, ReadInfer(std::move(message)));
  if (!stream) RETURN_IF_ERROR(CheckOneResponse(call, "generate_stream"));
  if (stream && !call.stream) return FieldError(kStream, "is false; there is generate");
  return call;
}

}  // namespace continuo::gateway::kserve
