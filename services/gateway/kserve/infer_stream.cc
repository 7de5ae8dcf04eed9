// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/kserve/infer_stream.h"

#include <utility>
#include <vector>

#include "services/common/grpc/grpc_status.h"
#include "services/common/grpc/message_bytes.h"
#include "services/gateway/grpc/client_call.h"
#include "services/gateway/kserve/infer_call.h"
#include "services/protocol/error.h"

namespace continuo::gateway::kserve {

// One generation of a stream. Deletes itself at its Finish.
class InferStream::Generation : public RelayClient {
 public:
  Generation(std::shared_ptr<InferStream> stream, InferCall call)
      : stream_(std::move(stream)), call_(std::move(call)), answer_(call_) {}

  const InferCall& call() const { return call_; }
  void set_relay(const std::shared_ptr<StreamRelay>& relay) { relay_ = relay; }

  void Write(const v1::GenerateResponse& response) override {
    inference::ModelStreamInferResponse message;
    if (auto answer = answer_.Add(response); answer.has_value()) {
      *message.mutable_infer_response() = *std::move(answer);
      stream_->Send(message, relay_);
    } else {
      relay_->OnWritten(true);
    }
  }

  void Finish(const absl::Status& status, const RelayReport& /*report*/) override {
    if (!status.ok()) {
      stream_->SendError(call_.id, WithClientsName(call_, status));
    } else if (auto end = answer_.End(); end.has_value()) {
      inference::ModelStreamInferResponse message;
      *message.mutable_infer_response() = *std::move(end);
      stream_->Send(message, nullptr);
    }
    stream_->OnGenerationEnd(this);
    delete this;
  }

 private:
  const std::shared_ptr<InferStream> stream_;
  const InferCall call_;  // without its request
  InferAnswer answer_;
  std::shared_ptr<StreamRelay> relay_;
};

InferStream* InferStream::Start(grpc::CallbackServerContext* context, GenerateService* service,
                                OpenCalls* open_calls) {
  const std::shared_ptr<InferStream> stream(new InferStream(context, service, open_calls));
  stream->self_ = stream;
  const absl::StatusOr<std::string> tenant = service->Authenticate(CallOf(*context, {}));
  if (!tenant.ok()) {
    service->OnRejected("", "", tenant.status());
    stream->End(tenant.status());
  } else {
    absl::MutexLock lock(&stream->mutex_);
    stream->ReadNext();
  }
  return stream.get();
}

bool InferStream::IsFull() const {
  if (running_.size() >= kMaxGenerations || outgoing_.size() >= kMaxOutgoing) return true;
  size_t bytes = 0;
  for (const Outgoing& outgoing : outgoing_) bytes += outgoing.bytes.Length();
  return bytes >= kMaxOutgoingBytes;
}

void InferStream::ReadNext() {
  if (reading_ || reads_done_ || ended_ || IsFull()) return;
  reading_ = true;
  incoming_.Clear();
  StartRead(&incoming_);
}

void InferStream::OnReadDone(bool ok) {
  if (ok) Begin();
  absl::MutexLock lock(&mutex_);
  reading_ = false;
  reads_done_ = reads_done_ || !ok;
  ReadNext();
  EndIfDone();
}

void InferStream::Begin() {
  ClientCall call = CallOf(*context_, incoming_);
  absl::StatusOr<InferCall> infer = ParseInferCall(incoming_, service_, &call);
  if (!infer.ok()) {
    // The id of a request that does not parse is not known, or as it came.
    inference::ModelInferRequest request;
    SendError(common::ParseMessage(incoming_, &request).ok() ? IdForErrors(request) : "",
              infer.status());
    return;
  }
  v1::GenerateRequest request = std::exchange(infer->request, {});
  auto* const generation = new Generation(self_, *std::move(infer));
  absl::StatusOr<std::shared_ptr<StreamRelay>> relay =
      service_->Open(call, std::move(request), generation);
  if (!relay.ok()) {
    SendError(generation->call().id, WithClientsName(generation->call(), relay.status()));
    delete generation;
    return;
  }
  generation->set_relay(*relay);
  bool ended;
  {
    absl::MutexLock lock(&mutex_);
    running_.emplace(generation, *relay);
    ended = ended_;
  }
  // A relay has to be started, whatever becomes of it.
  (*relay)->Start();
  if (ended) (*relay)->OnCancelled();
}

void InferStream::Send(const inference::ModelStreamInferResponse& response,
                       std::shared_ptr<StreamRelay> relay) {
  bool written = true;
  {
    absl::MutexLock lock(&mutex_);
    if (!ended_) {
      Outgoing& outgoing = outgoing_.emplace_back();
      common::SerializeMessage(response, &outgoing.bytes);
      outgoing.relay = std::move(relay);
      WriteNext();
      return;
    }
    written = false;
  }
  if (relay != nullptr) relay->OnWritten(written);
}

void InferStream::WriteNext() {
  if (writing_ || ended_ || outgoing_.empty()) return;
  writing_ = true;
  StartWrite(&outgoing_.front().bytes);
}

void InferStream::OnWriteDone(bool ok) {
  std::shared_ptr<StreamRelay> relay;
  {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    relay = std::move(outgoing_.front().relay);
    outgoing_.pop_front();
    WriteNext();
    ReadNext();
    EndIfDone();
  }
  if (relay != nullptr) relay->OnWritten(ok);
}

void InferStream::SendError(const std::string& id, const absl::Status& status) {
  if (protocol::ReasonOf(status) == protocol::kReasonContinue) {
    // The gateway ends, and all that it would begin ends likewise.
    End(status);
    return;
  }
  inference::ModelStreamInferResponse message;
  message.set_error_message(common::MessageOnWire(status));
  message.mutable_infer_response()->set_id(id);
  Send(message, nullptr);
}

void InferStream::OnGenerationEnd(const Generation* generation) {
  absl::MutexLock lock(&mutex_);
  running_.erase(generation);
  ReadNext();
  EndIfDone();
}

void InferStream::EndIfDone() {
  if (ended_ || reading_ || !reads_done_ || !running_.empty() || !outgoing_.empty()) return;
  ended_ = true;
  Finish(grpc::Status::OK);
}

void InferStream::End(const absl::Status& status) {
  std::vector<std::shared_ptr<StreamRelay>> relays, waiting;
  {
    absl::MutexLock lock(&mutex_);
    if (std::exchange(ended_, true)) return;
    for (const auto& [generation, relay] : running_) relays.push_back(relay);
    // Responses that wait behind the write in flight are not written any more.
    for (size_t i = writing_ ? 1 : 0; i < outgoing_.size(); ++i) {
      if (outgoing_[i].relay != nullptr) waiting.push_back(std::move(outgoing_[i].relay));
    }
    outgoing_.resize(writing_ ? 1 : 0);
    Finish(common::ToGrpcStatus(status));
  }
  for (const auto& relay : relays) relay->OnCancelled();
  for (const auto& relay : waiting) relay->OnWritten(false);
}

void InferStream::OnCancel() { End(absl::CancelledError("the client is gone")); }

void InferStream::OnDone() { const std::shared_ptr<InferStream> last = std::move(self_); }

}  // namespace continuo::gateway::kserve
