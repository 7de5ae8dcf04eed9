// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/grpc/text_forwarder.h"

#include <memory>
#include <string>
#include <utility>

#include "services/base/status_macros.h"
#include "services/common/grpc/end_unary.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/grpc/forwarded_call.h"
#include "services/gateway/relay/message_memory.h"

namespace continuo::gateway {
namespace {

// The methods that are forwarded, as ForwardedCall calls them.
constexpr auto kTokenize = [](auto* stub, auto* context, auto* request, auto* response, auto done) {
  stub->async()->Tokenize(context, request, response, std::move(done));
};
constexpr auto kDetokenize = [](auto* stub, auto* context, auto* request, auto* response,
                                auto done) {
  stub->async()->Detokenize(context, request, response, std::move(done));
};
constexpr auto kGetTokenizer = [](auto* stub, auto* context, auto* request, auto* response,
                                  auto done) {
  stub->async()->GetTokenizer(context, request, response, std::move(done));
};

}  // namespace

template <typename Request, typename Response, typename Method>
grpc::ServerUnaryReactor* TextForwarder::Forward(grpc::CallbackServerContext* context,
                                                 const grpc::ByteBuffer& bytes,
                                                 grpc::ByteBuffer* response, Method method) const {
  CallIntake* const intake = dependencies_.intake;
  if (const absl::Status open = intake->CheckOpen(); !open.ok()) {
    return common::EndUnary(context, open);
  }
  std::shared_ptr<const KeyGrant> key;
  absl::StatusOr<CallContext> call_context = intake->ContextOf(CallOf(*context, bytes), &key);
  if (!call_context.ok()) return common::EndUnary(context, call_context.status());
  const absl::StatusOr<int64_t> memory = common::MemoryOf(bytes, *Request::descriptor());
  if (!memory.ok()) return common::EndUnary(context, memory.status());
  absl::StatusOr<Admission::Ticket> ticket =
      dependencies_.admission->Admit({.bytes = *memory, .tenant = call_context->tenant});
  if (!ticket.ok()) return common::EndUnary(context, ticket.status());
  absl::StatusOr<Request> request = common::ParseMessage<Request>(bytes);
  if (!request.ok()) return common::EndUnary(context, request.status());
  if (const absl::Status model = intake->BindModel(key.get(), &*request); !model.ok()) {
    return common::EndUnary(context, model);
  }
  if (call_context->request_id.empty()) call_context->request_id = intake->MakeRequestId();
  using Call = ForwardedCall<Request, Response, Method>;
  auto* const reactor = new ForwardedReactor<Call>(dependencies_.open_calls);
  const auto call = std::make_shared<Call>(
      dependencies_.open_calls, dependencies_.router, dependencies_.pool, *std::move(request),
      *std::move(call_context), *std::move(ticket), method,
      [reactor, response](const grpc::Status& status, const Response& answer) {
        if (status.ok()) common::SerializeMessage(answer, response);
        reactor->Finish(status);
      });
  reactor->Attach(call);
  call->TryNext();
  return reactor;
}

template <typename Request, typename Response, typename Method>
TextService::Cancel TextForwarder::Ask(const ClientCall& call, Request request,
                                       TextService::Done<Response> done, Method method) const {
  const auto admit = [&]() -> absl::StatusOr<std::pair<CallContext, Admission::Ticket>> {
    RETURN_IF_ERROR(dependencies_.intake->CheckOpen());
    std::shared_ptr<const KeyGrant> key;
    ASSIGN_OR_RETURN(CallContext context, dependencies_.intake->ContextOf(call, &key));
    RETURN_IF_ERROR(dependencies_.intake->BindModel(key.get(), &request));
    ASSIGN_OR_RETURN(
        Admission::Ticket ticket,
        dependencies_.admission->Admit({.bytes = MemoryOf(request), .tenant = context.tenant}));
    context.request_id = dependencies_.intake->MakeRequestId();
    return std::pair(std::move(context), std::move(ticket));
  };
  auto admitted = admit();
  if (!admitted.ok()) {
    done(admitted.status());
    return [] {};
  }
  using Call = ForwardedCall<Request, Response, Method>;
  const auto forwarded = std::make_shared<Call>(
      dependencies_.open_calls, dependencies_.router, dependencies_.pool, std::move(request),
      std::move(admitted->first), std::move(admitted->second), method,
      [done = std::move(done)](const grpc::Status& status, Response answer) {
        if (status.ok()) {
          done(std::move(answer));
        } else {
          done(common::FromGrpcStatus(status));
        }
      });
  forwarded->TryNext();
  return [forwarded] { forwarded->Cancel(); };
}

TextService::Cancel TextForwarder::AskTokenize(const ClientCall& call, v1::TokenizeRequest request,
                                               TextService::Done<v1::TokenizeResponse> done) const {
  return Ask<v1::TokenizeRequest, v1::TokenizeResponse>(call, std::move(request), std::move(done),
                                                        kTokenize);
}

TextService::Cancel TextForwarder::AskDetokenize(
    const ClientCall& call, v1::DetokenizeRequest request,
    TextService::Done<v1::DetokenizeResponse> done) const {
  return Ask<v1::DetokenizeRequest, v1::DetokenizeResponse>(call, std::move(request),
                                                            std::move(done), kDetokenize);
}

TextService::Cancel TextForwarder::AskGetTokenizer(
    const ClientCall& call, v1::GetTokenizerRequest request,
    TextService::Done<v1::GetTokenizerResponse> done) const {
  return Ask<v1::GetTokenizerRequest, v1::GetTokenizerResponse>(call, std::move(request),
                                                                std::move(done), kGetTokenizer);
}

grpc::ServerUnaryReactor* TextForwarder::Tokenize(grpc::CallbackServerContext* context,
                                                  const grpc::ByteBuffer& bytes,
                                                  grpc::ByteBuffer* response) const {
  return Forward<v1::TokenizeRequest, v1::TokenizeResponse>(context, bytes, response, kTokenize);
}

grpc::ServerUnaryReactor* TextForwarder::Detokenize(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer& bytes,
                                                    grpc::ByteBuffer* response) const {
  return Forward<v1::DetokenizeRequest, v1::DetokenizeResponse>(context, bytes, response,
                                                                kDetokenize);
}

grpc::ServerUnaryReactor* TextForwarder::GetTokenizer(grpc::CallbackServerContext* context,
                                                      const grpc::ByteBuffer& bytes,
                                                      grpc::ByteBuffer* response) const {
  return Forward<v1::GetTokenizerRequest, v1::GetTokenizerResponse>(context, bytes, response,
                                                                    kGetTokenizer);
}

}  // namespace continuo::gateway
