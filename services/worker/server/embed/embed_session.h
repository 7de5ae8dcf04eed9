// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "continuo/v1/inference.pb.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/embed/embed_work.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/server/session/work_pool.h"

namespace continuo::server {

// Figures of a call of Embed, for log and span.
struct EmbedReport {
  int inputs = 0;
  int64_t prompt_tokens = 0, cached_prompt_tokens = 0;
  int preemptions = 0;
  absl::Duration queue;  // the longest of an input
};

// The answer to one call of Embed: states of the engine in, vectors or scores out. Knows neither
// gRPC nor the engine. Vectors are made on a pool's threads, by one at a time. The first input that
// fails ends the others.
class EmbedSession : public std::enable_shared_from_this<EmbedSession> {
 public:
  struct Hooks {
    // Ends an input in the engine; ids that it does not know are ignored.
    std::function<void(engine::RequestId id, absl::Status why)> cancel;
    // Called once, when the engine has let go of every input.
    std::function<void(absl::StatusOr<v1::EmbedResponse> response)> finish;
  };

  // `work` has requests with ids, which stay there for TakeRequests. The pool outlives the
  // session's work, which ends with `finish`.
  static std::shared_ptr<EmbedSession> Create(EmbedWork work, Hooks hooks, WorkPool* pool,
                                              std::shared_ptr<const ServedModel> model);

  // Returns the requests for the engine; their sinks hold the session.
  std::vector<std::pair<engine::Request, engine::RequestSink>> TakeRequests();
  // Ends every input. Called once the engine has them.
  void Cancel(const absl::Status& why);
  // Complete when `finish` is called.
  const EmbedReport& report() const { return report_; }

 private:
  EmbedSession(EmbedWork work, Hooks hooks, WorkPool* pool,
               std::shared_ptr<const ServedModel> model);
  // Called on the engine's thread; only notes the event and wakes the pool.
  void OnEvent(size_t input, engine::RequestEvent event);
  void Process();
  void Take(size_t input, engine::RequestEvent event);

  const Hooks hooks_;
  WorkPool* const pool_;
  const std::shared_ptr<const ServedModel> model_;
  const int dimensions_;
  const bool normalises_;
  std::vector<engine::Request> requests_;  // until TakeRequests
  std::vector<engine::RequestId> ids_;

  // Touched by whoever set busy_, one thread at a time.
  v1::EmbedResponse response_;
  absl::Status status_;  // of the first input that failed
  size_t num_ended_ = 0;
  EmbedReport report_;

  absl::Mutex mutex_;
  std::vector<std::pair<size_t, engine::RequestEvent>> events_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::server
