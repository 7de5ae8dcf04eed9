// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/session/work_pool.h"
#include "services/worker/text/bundle/tokenizer_bundle.h"

namespace continuo::server {

// One call of vLLM's GetTokenizer: the parts of the bundle, which the text pool makes where nobody
// has asked for it before. Lives until gRPC is done with it.
class TokenizerCall : public grpc::ServerWriteReactor<grpc::ByteBuffer> {
 public:
  static constexpr size_t kPartBytes = 64 << 10;

  // Returns the reactor of a new call. It ends at once with UNAVAILABLE while the model is being
  // loaded. `serving` and `text_pool` outlive it.
  static TokenizerCall* Start(const grpc::ByteBuffer& request, const ServingSlot* serving,
                              WorkPool* text_pool);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  TokenizerCall() = default;
  absl::Status Begin(const grpc::ByteBuffer& request, const ServingSlot* serving,
                     WorkPool* text_pool);
  void OnBundle(const text::TokenizerBundler::Result& bundle);
  void WritePart() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status);
  void FinishWith(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::shared_ptr<TokenizerCall> self_;  // until OnDone
  absl::Mutex mutex_;
  std::shared_ptr<const text::TokenizerBundle> bundle_ ABSL_GUARDED_BY(mutex_);
  size_t num_written_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::ByteBuffer outgoing_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::server
