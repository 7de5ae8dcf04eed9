// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/kserve_service.h"

#include <algorithm>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/kserve/infer_call.h"
#include "services/gateway/kserve/infer_request.h"
#include "services/gateway/kserve/infer_stream.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {
namespace {

using Models = std::vector<v1::Model>;

const v1::Model* Find(const Models& models, const std::string& name) {
  const auto at =
      std::ranges::find_if(models, [&](const v1::Model& model) { return model.name() == name; });
  return at == models.end() ? nullptr : &*at;
}

bool IsVersion(const std::string& version) { return version.empty() || version == kVersion; }

absl::Status CheckServed(const Models& models, const std::string& name,
                         const std::string& version) {
  if (Find(models, name) != nullptr && IsVersion(version)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("model \"", name, "\", version \"", version, "\" is not served here"));
}

using Metadata = inference::ModelMetadataResponse::TensorMetadata;

Metadata Described(const char* name, const char* datatype, int64_t size) {
  Metadata tensor;
  tensor.set_name(name);
  tensor.set_datatype(datatype);
  tensor.add_shape(size);
  return tensor;
}

}  // namespace

template <typename Request, typename Answer>
grpc::ServerUnaryReactor* KserveService::AnswerKnown(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer& bytes,
                                                     grpc::ByteBuffer* response, Answer answer) {
  const ClientCall call = CallOf(*context, bytes);
  // Bytes without a valid key are not parsed.
  if (const auto tenant = dependencies_.service->Authenticate(call); !tenant.ok()) {
    return common::EndUnary(context, tenant.status());
  }
  const absl::StatusOr<Request> request = common::ParseMessage<Request>(bytes);
  if (!request.ok()) return common::EndUnary(context, request.status());
  const auto answered = answer(*request, dependencies_.models(call));
  if (answered.ok()) common::SerializeMessage(*answered, response);
  return common::EndUnary(context, answered.status());
}

// Probes have no key.
grpc::ServerUnaryReactor* KserveService::ServerLive(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* /*bytes*/,
                                                    grpc::ByteBuffer* response) {
  inference::ServerLiveResponse answer;
  answer.set_live(true);
  common::SerializeMessage(answer, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ServerReady(grpc::CallbackServerContext* context,
                                                     const grpc::ByteBuffer* /*bytes*/,
                                                     grpc::ByteBuffer* response) {
  inference::ServerReadyResponse answer;
  answer.set_ready(dependencies_.ready());
  common::SerializeMessage(answer, response);
  return common::EndUnary(context, absl::OkStatus());
}

grpc::ServerUnaryReactor* KserveService::ModelReady(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ModelReadyRequest>(
      context, *bytes, response,
      [](const auto& request,
         const Models& models) -> absl::StatusOr<inference::ModelReadyResponse> {
        const v1::Model* const model = Find(models, request.name());
        inference::ModelReadyResponse answer;
        answer.set_ready(model != nullptr && model->num_workers() > 0 &&
                         IsVersion(request.version()));
        return answer;
      });
}

grpc::ServerUnaryReactor* KserveService::ServerMetadata(grpc::CallbackServerContext* context,
                                                        const grpc::ByteBuffer* bytes,
                                                        grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ServerMetadataRequest>(
      context, *bytes, response,
      [this](const auto&, const Models&) -> absl::StatusOr<inference::ServerMetadataResponse> {
        inference::ServerMetadataResponse answer;
        answer.set_name("continuo");
        answer.set_version(dependencies_.version);
        answer.add_extensions("model_repository");
        return answer;
      });
}

grpc::ServerUnaryReactor* KserveService::ModelMetadata(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* bytes,
                                                       grpc::ByteBuffer* response) {
  return AnswerKnown<inference::ModelMetadataRequest>(
      context, *bytes, response,
      [](const auto& request,
         const Models& models) -> absl::StatusOr<inference::ModelMetadataResponse> {
        RETURN_IF_ERROR(CheckServed(models, request.name(), request.version()));
        inference::ModelMetadataResponse answer;
        answer.set_name(request.name());
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
      });
}

grpc::ServerUnaryReactor* KserveService::RepositoryIndex(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* bytes,
                                                         grpc::ByteBuffer* response) {
  return AnswerKnown<inference::RepositoryIndexRequest>(
      context, *bytes, response,
      [](const auto& request,
         const Models& models) -> absl::StatusOr<inference::RepositoryIndexResponse> {
        if (!request.repository_name().empty()) {
          return protocol::FieldError("repository_name", "has to be empty: there is one");
        }
        inference::RepositoryIndexResponse answer;
        for (const v1::Model& model : models) {
          if (request.ready() && model.num_workers() == 0) continue;
          auto* const index = answer.add_models();
          index->set_name(model.name());
          index->set_version(kVersion);
          index->set_state(model.num_workers() > 0 ? "READY" : "UNAVAILABLE");
          if (model.num_workers() == 0) index->set_reason("no worker has it");
        }
        return answer;
      });
}

grpc::ServerUnaryReactor* KserveService::ModelInfer(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* bytes,
                                                    grpc::ByteBuffer* response) {
  return InferUnary::Start(context, *bytes, response, dependencies_.service,
                           dependencies_.open_calls);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* KserveService::ModelStreamInfer(
    grpc::CallbackServerContext* context) {
  return InferStream::Start(context, dependencies_.service, dependencies_.open_calls);
}

}  // namespace continuo::gateway::kserve
