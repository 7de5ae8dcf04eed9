// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/answer_json.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "services/gateway/kserve/call/infer_tensor.h"

namespace continuo::gateway::kserve {
namespace {

using OrderedJson = nlohmann::ordered_json;
using Output = inference::ModelInferResponse::InferOutputTensor;

std::string Dump(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

OrderedJson DataOf(const Output& output) {
  OrderedJson data = OrderedJson::array();
  for (const std::string& text : output.contents().bytes_contents()) data.push_back(text);
  for (const uint32_t number : output.contents().uint_contents()) data.push_back(number);
  return data;
}

std::string BytesOf(const Output& output) {
  std::string bytes;
  for (const std::string& text : output.contents().bytes_contents()) AppendRawText(text, &bytes);
  for (const uint32_t number : output.contents().uint_contents()) AppendRawNumber(number, &bytes);
  return bytes;
}

OrderedJson HeadOf(const inference::ModelInferResponse& response) {
  OrderedJson head = {{"model_name", response.model_name()},
                      {"model_version", response.model_version()}};
  if (!response.id().empty()) head["id"] = response.id();
  return head;
}

template <typename Tensors>
OrderedJson TensorsJson(const Tensors& tensors) {
  OrderedJson list = OrderedJson::array();
  for (const auto& tensor : tensors) {
    list.push_back(
        {{"name", tensor.name()}, {"datatype", tensor.datatype()}, {"shape", tensor.shape()}});
  }
  return list;
}

}  // namespace

InferBody InferJson(const inference::ModelInferResponse& response, const BinaryOutputs& binary) {
  InferBody body;
  OrderedJson json = HeadOf(response);
  OrderedJson outputs = OrderedJson::array();
  for (const Output& output : response.outputs()) {
    OrderedJson told = {
        {"name", output.name()}, {"datatype", output.datatype()}, {"shape", output.shape()}};
    if (binary.Has(output.name())) {
      const std::string bytes = BytesOf(output);
      told["parameters"] = {{"binary_data_size", bytes.size()}};
      body.binary.append(bytes);
    } else {
      told["data"] = DataOf(output);
    }
    outputs.push_back(std::move(told));
  }
  json["outputs"] = std::move(outputs);
  body.json = Dump(json);
  return body;
}

std::string GenerateJson(const inference::ModelInferResponse& response) {
  OrderedJson json = HeadOf(response);
  for (const Output& output : response.outputs()) {
    OrderedJson data = DataOf(output);
    json[output.name()] = data.size() == 1 ? std::move(data.front()) : std::move(data);
  }
  return Dump(json);
}

std::string ServerMetadataJson(const inference::ServerMetadataResponse& metadata) {
  return Dump({{"name", metadata.name()},
               {"version", metadata.version()},
               {"extensions", metadata.extensions()}});
}

std::string ModelMetadataJson(const inference::ModelMetadataResponse& metadata) {
  return Dump({{"name", metadata.name()},
               {"versions", metadata.versions()},
               {"platform", metadata.platform()},
               {"inputs", TensorsJson(metadata.inputs())},
               {"outputs", TensorsJson(metadata.outputs())}});
}

std::string RepositoryIndexJson(const inference::RepositoryIndexResponse& index) {
  OrderedJson list = OrderedJson::array();
  for (const auto& model : index.models()) {
    OrderedJson entry = {
        {"name", model.name()}, {"version", model.version()}, {"state", model.state()}};
    if (!model.reason().empty()) entry["reason"] = model.reason();
    list.push_back(std::move(entry));
  }
  return Dump(list);
}

std::string InferErrorJson(std::string_view message) { return Dump({{"error", message}}); }

}  // namespace continuo::gateway::kserve
