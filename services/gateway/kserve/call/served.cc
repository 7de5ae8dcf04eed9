// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/call/served.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "services/gateway/kserve/call/infer_request.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using Models = std::vector<v1::Model>;
using Metadata = inference::ModelMetadataResponse::TensorMetadata;

// True unless its workers tell that the model does something else.
bool Generates(const v1::Model& model) {
  const auto& told = model.capabilities();
  return told.empty() || std::ranges::find(told, v1::CAPABILITY_GENERATE) != told.end();
}

// Null if there is no such model that generates.
const v1::Model* Find(const Models& models, const std::string& name) {
  const auto at = std::ranges::find(models, name, &v1::Model::name);
  return at == models.end() || !Generates(*at) ? nullptr : &*at;
}

bool IsVersion(const std::string& version) { return version.empty() || version == kVersion; }

Metadata Described(const char* name, const char* datatype, int64_t size) {
  Metadata tensor;
  tensor.set_name(name);
  tensor.set_datatype(datatype);
  tensor.add_shape(size);
  return tensor;
}

}  // namespace

inference::ServerMetadataResponse ServerMetadataOf(const std::string& gateway_version) {
  inference::ServerMetadataResponse answer;
  answer.set_name("continuo");
  answer.set_version(gateway_version);
  for (const char* const extension : {"model_repository", "binary_tensor_data", "generate"}) {
    answer.add_extensions(extension);
  }
  return answer;
}

bool IsReady(const Models& models, const std::string& name, const std::string& version) {
  const v1::Model* const model = Find(models, name);
  return model != nullptr && model->num_workers() > 0 && IsVersion(version);
}

absl::StatusOr<inference::ModelMetadataResponse> ModelMetadataOf(const Models& models,
                                                                 const std::string& name,
                                                                 const std::string& version) {
  if (Find(models, name) == nullptr || !IsVersion(version)) {
    return absl::NotFoundError(
        absl::StrCat("model \"", name, "\", version \"", version, "\" is not served here"));
  }
  inference::ModelMetadataResponse answer;
  answer.set_name(name);
  answer.add_versions(kVersion);
  answer.set_platform("continuo");
  for (const Metadata& tensor :
       {Described(kTextInput, "BYTES", 1), Described(kInputIds, "INT64", -1),
        Described(kStream, "BOOL", 1), Described(kSamplingParameters, "BYTES", 1)}) {
    *answer.add_inputs() = tensor;
  }
  for (const Metadata& tensor :
       {Described(kTextOutput, "BYTES", -1), Described(kFinishReason, "BYTES", -1),
        Described(kNumInputTokens, "UINT32", 1), Described(kNumOutputTokens, "UINT32", 1)}) {
    *answer.add_outputs() = tensor;
  }
  return answer;
}

absl::StatusOr<inference::RepositoryIndexResponse> RepositoryIndexOf(
    const Models& models, const inference::RepositoryIndexRequest& request) {
  if (!request.repository_name().empty()) {
    return protocol::FieldError("repository_name", "has to be empty: there is one");
  }
  inference::RepositoryIndexResponse answer;
  for (const v1::Model& model : models) {
    if (!Generates(model) || (request.ready() && model.num_workers() == 0)) continue;
    auto* const index = answer.add_models();
    index->set_name(model.name());
    index->set_version(kVersion);
    index->set_state(model.num_workers() > 0 ? "READY" : "UNAVAILABLE");
    if (model.num_workers() == 0) index->set_reason("no worker has it");
  }
  return answer;
}

}  // namespace continuo::gateway::kserve
