// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "services/base/clock.h"
#include "services/common/telemetry/call_trace.h"
#include "services/worker/server/grpc/call_cutter.h"
#include "services/worker/server/grpc/call_metadata.h"
#include "services/worker/server/lifetime/lifecycle.h"
#include "services/worker/server/lifetime/load_board.h"
#include "services/worker/server/lifetime/open_calls.h"
#include "services/worker/server/lifetime/request_registry.h"
#include "services/worker/server/runtime/random_bits.h"
#include "services/worker/server/runtime/request_counters.h"
#include "services/worker/server/runtime/serving.h"
#include "services/worker/server/runtime/worker_identity.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/generate_session.h"

namespace continuo::server {

// The status that a gateway gets for a request that the engine rejected; `field` is what makes it
// too large.
absl::Status RejectionStatus(const absl::Status& status, std::string_view field);

// Adds the worker's load to what ends a call, for balancers that know ORCA.
void AddLoadTrailer(const LoadBoard& load, const PeerPolicy& peers,
                    grpc::CallbackServerContext* context);

// The messages of a protocol that has generations, as bytes. One call has one; not thread-safe.
class GenerateForm {
 public:
  virtual ~GenerateForm() = default;
  // Reads the client's request. INVALID_ARGUMENT names a field of the protocol. `bytes` may be
  // cleared.
  virtual absl::Status Parse(grpc::ByteBuffer bytes, v1::GenerateRequest* request) = 0;
  // Returns what the client gets of a response: none or several messages.
  virtual std::vector<grpc::ByteBuffer> Serialize(const v1::GenerateResponse& response) = 0;
  // An error as the client gets it: with the protocol's names of fields.
  virtual absl::Status Explain(const absl::Status& status) const { return status; }
};

// The form of InferenceService itself.
class OwnGenerateForm : public GenerateForm {
 public:
  absl::Status Parse(grpc::ByteBuffer bytes, v1::GenerateRequest* request) override;
  std::vector<grpc::ByteBuffer> Serialize(const v1::GenerateResponse& response) override;
};

// One call of Generate: gRPC's callbacks on one side, a GenerateSession on the other. Deletes
// itself when gRPC is done with it.
class GenerateCall : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public ResponseWriter {
 public:
  // Largest number of bytes of prompts that wait for a thread of the text pool; beyond it new ones
  // are rejected.
  static constexpr size_t kMaxWaitingPromptBytes = 64 << 20;

  // The parts of the worker that a call uses. All of them outlive it.
  struct Dependencies {
    const WorkerIdentity* identity;
    PeerPolicy peers;
    const Clock* clock;
    RandomBits* random;
    const SaltKey* salt_key;
    const ServingSlot* serving;
    const Lifecycle* lifecycle;
    OpenCalls* open_calls;
    const LoadBoard* load_board;
    RequestRegistry* registry;
    RequestCounters* counters;
    WorkPool* text_pool;     // encodes long prompts
    WorkPool* grammar_pool;  // prepares requests with a grammar
    WorkPool* delivery_pool;
    common::SpanExporter* spans;  // null: nothing is traced
  };

  // `id` is the engine's name for the request, unlike any other of this process.
  GenerateCall(grpc::CallbackServerContext* context, const grpc::ByteBuffer& request,
               engine::RequestId id, const Dependencies& dependencies,
               std::unique_ptr<GenerateForm> form = std::make_unique<OwnGenerateForm>());

  // grpc::ServerWriteReactor
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // ResponseWriter
  void SendAccepted() override;
  void Write(v1::GenerateResponse response) override;
  void Finish(absl::Status status) override;
  void WriteLast(v1::GenerateResponse response, absl::Status status) override;

 private:
  using Reactor = grpc::ServerWriteReactor<grpc::ByteBuffer>;

  ~GenerateCall() override = default;
  void Run();
  // Parses the request and starts it, or posts that. On an error nothing was started.
  absl::Status Start();
  // Finds the model, which may be an adapter that has to be read first, and goes on with StartWith.
  // On an error nothing was started.
  absl::Status StartParsed(const std::shared_ptr<const v1::GenerateRequest>& request);
  // Makes the request one of the live ones, by its id.
  absl::Status Register(const v1::GenerateRequest& request, const std::string& label);
  // Hands the request to the engine, or answers it right away. On an error nothing was started.
  absl::Status StartWith(const v1::GenerateRequest& request,
                         std::shared_ptr<const ServedModel> model);
  // Adds the messages of a response to those that are to be written.
  void Queue(const v1::GenerateResponse& response);
  // Writes the next message; the last one together with the end, if there is one.
  void WriteNext();
  // Ends the request's life at this worker: takes it off the registry, counts and logs its end.
  // Returns the status for the client.
  grpc::Status Conclude(absl::Status status);
  // Tells the session that gRPC has taken its response, or, if not `ok`, that the client is gone.
  void Written(bool ok);
  // Logs the end of the call, and ends its span.
  void LogEnd(const absl::Status& status);

  const Dependencies worker_;
  grpc::CallbackServerContext* const context_;
  absl::StatusOr<CallInfo> info_;
  const absl::Duration start_;
  common::CallTrace trace_;
  grpc::ByteBuffer bytes_;  // of the request, until it is parsed
  const std::unique_ptr<GenerateForm> form_;
  std::deque<grpc::ByteBuffer> outgoing_;  // the write in flight, and what is behind it
  std::optional<grpc::Status> end_;        // what follows the last of them, after WriteLast
  const engine::RequestId id_;
  std::string label_;
  std::shared_ptr<const ServedModel> model_;  // null until the request is parsed
  const std::shared_ptr<const CallCutter> cutter_;
  const std::shared_ptr<RequestControl> control_;
  std::shared_ptr<GenerateSession> session_;
};

}  // namespace continuo::server
