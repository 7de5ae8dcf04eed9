// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/grpc/open_calls.h"
#include "services/gateway/kserve/call/infer_answer.h"
#include "services/gateway/kserve/call/infer_request.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway::kserve {

// One call of ModelStreamInfer: generations that run beside one another, whose responses come as
// they are made. A generation that fails is told by an error_message, and the others go on; the
// stream ends when its client sends no more requests and all have ended, or with a status where
// the caller is not known or the gateway ends. No request is read while kMaxGenerations run, or
// while responses wait for the client to read them: kMaxOutgoing, or kMaxOutgoingBytes. Lives until
// gRPC and its generations are done with it.
class InferStream : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  static constexpr size_t kMaxGenerations = 64;
  static constexpr size_t kMaxOutgoing = 64;
  static constexpr size_t kMaxOutgoingBytes = size_t{1} << 20;

  // Returns the reactor of a new call. The service and what counts open calls outlive it.
  static InferStream* Start(grpc::CallbackServerContext* context, GenerateService* service,
                            OpenCalls* open_calls);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  class Generation;
  // A response that waits to be written. Its relay goes on then; null where it waits for nothing.
  struct Outgoing {
    grpc::ByteBuffer bytes;
    std::shared_ptr<StreamRelay> relay;
  };

  InferStream(grpc::CallbackServerContext* context, GenerateService* service, OpenCalls* open_calls)
      : context_(context), service_(service), open_(open_calls) {}

  // Begins the generation of the request that was read.
  void Begin();
  void Send(const inference::ModelStreamInferResponse& response,
            std::shared_ptr<StreamRelay> relay);
  // Tells that a generation, which may not have begun, has failed.
  void SendError(const std::string& id, const absl::Status& status);
  void OnGenerationEnd(const Generation* generation);
  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if no more may be begun for now.
  bool IsFull() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ReadNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndIfDone() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void End(const absl::Status& status);

  grpc::CallbackServerContext* const context_;
  GenerateService* const service_;
  const OpenCalls::Call open_;
  std::shared_ptr<InferStream> self_;  // until OnDone
  grpc::ByteBuffer incoming_;          // of the read in flight

  absl::Mutex mutex_;
  bool reading_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool reads_done_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<Outgoing> outgoing_ ABSL_GUARDED_BY(mutex_);  // the first one is being written
  absl::flat_hash_map<const Generation*, std::shared_ptr<StreamRelay>> running_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway::kserve
