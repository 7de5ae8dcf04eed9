// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm_calls/tokenizer_call.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "services/base/status_macros.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/protocol/validate_request.h"
#include "vllm/common.pb.h"

namespace continuo::server {

TokenizerCall* TokenizerCall::Start(const grpc::ByteBuffer& request, const ServingSlot* serving,
                                    WorkPool* text_pool) {
  std::shared_ptr<TokenizerCall> call(new TokenizerCall());
  call->self_ = call;
  if (const absl::Status status = call->Begin(request, serving, text_pool); !status.ok()) {
    call->End(status);
  }
  return call.get();
}

absl::Status TokenizerCall::Begin(const grpc::ByteBuffer& bytes, const ServingSlot* slot,
                                  WorkPool* text_pool) {
  smg::grpc::common::GetTokenizerRequest request;
  RETURN_IF_ERROR(common::ParseMessage(bytes, &request));
  RETURN_IF_ERROR(protocol::RejectUnknownFields(request));
  const Serving* const serving = slot->get();
  if (serving == nullptr) return absl::UnavailableError("the model is being loaded");
  const std::shared_ptr<text::TokenizerBundler> bundler = serving->model.bundler;
  if (bundler == nullptr) {
    return absl::FailedPreconditionError("the worker's tokenizer is of no files");
  }
  bundler->Get(
      [&](std::function<void()> work) {
        text_pool->Post([bundler, work = std::move(work)] { work(); });
      },
      [self = self_](const text::TokenizerBundler::Result& bundle) { self->OnBundle(bundle); });
  return absl::OkStatus();
}

void TokenizerCall::OnBundle(const text::TokenizerBundler::Result& bundle) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return;
  if (!bundle.ok()) {
    FinishWith(bundle.status());
    return;
  }
  bundle_ = *bundle;
  WritePart();
}

void TokenizerCall::WritePart() {
  smg::grpc::common::GetTokenizerChunk part;
  const size_t size = std::min(kPartBytes, bundle_->zip.size() - num_written_);
  part.set_data(bundle_->zip.substr(num_written_, size));
  num_written_ += size;
  if (num_written_ == bundle_->zip.size()) part.set_sha256(bundle_->sha256);
  common::SerializeMessage(part, &outgoing_);
  StartWrite(&outgoing_);
}

void TokenizerCall::OnWriteDone(bool ok) {
  absl::MutexLock lock(&mutex_);
  if (!ok || ended_) return;
  if (num_written_ == bundle_->zip.size()) {
    FinishWith(absl::OkStatus());
  } else {
    WritePart();
  }
}

void TokenizerCall::OnCancel() { End(absl::CancelledError("the caller is gone")); }

void TokenizerCall::End(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  if (!ended_) FinishWith(status);
}

void TokenizerCall::FinishWith(const absl::Status& status) {
  ended_ = true;
  Finish(common::ToGrpcStatus(status));
}

void TokenizerCall::OnDone() { const std::shared_ptr<TokenizerCall> last = std::move(self_); }

}  // namespace continuo::server
