// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/relay/text_service.h"

namespace continuo::gateway {

// The client's side, over gRPC, of a call of TextService. Owns itself until gRPC is done with it.
class AskedReactor : public grpc::ServerUnaryReactor {
 public:
  // How the call is cancelled, which is known once it has begun. The call may have ended by then,
  // and this reactor with it.
  class CancelSlot {
   public:
    void Set(TextService::Cancel cancel) {
      {
        absl::MutexLock lock(&mutex_);
        cancel_ = cancel;
        if (!cancelled_) return;
      }
      cancel();
    }
    void Cancel() {
      TextService::Cancel cancel;
      {
        absl::MutexLock lock(&mutex_);
        cancelled_ = true;
        cancel = cancel_;
      }
      if (cancel) cancel();
    }

   private:
    absl::Mutex mutex_;
    TextService::Cancel cancel_ ABSL_GUARDED_BY(mutex_);
    bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  };

  explicit AskedReactor(OpenCalls* open) : open_(open) {}
  const std::shared_ptr<CancelSlot>& slot() const { return slot_; }
  void OnCancel() override { slot_->Cancel(); }
  void OnDone() override { delete this; }

 private:
  const OpenCalls::Call open_;
  const std::shared_ptr<CancelSlot> slot_ = std::make_shared<CancelSlot>();
};

// Answers a call by ask(done), a method of TextService.
template <typename Response, typename Ask>
grpc::ServerUnaryReactor* AnswerAsked(OpenCalls* open, grpc::ByteBuffer* response, Ask ask) {
  auto* const reactor = new AskedReactor(open);
  const std::shared_ptr<AskedReactor::CancelSlot> slot = reactor->slot();
  slot->Set(ask([reactor, response](const absl::StatusOr<Response>& answer) {
    if (answer.ok()) common::SerializeMessage(*answer, response);
    reactor->Finish(common::ToGrpcStatus(answer.status()));
  }));
  return reactor;
}

}  // namespace continuo::gateway
