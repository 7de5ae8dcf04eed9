// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.pb.h"
#include "services/base/clock.h"
#include "services/worker/engine/types/request.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/response_queue.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/server/session/work_pool.h"

namespace continuo::server {

// Takes a session's responses. Calls come one at a time.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // Called once at most, before Write, when the request has started and its first response comes
  // only at its end.
  virtual void SendAccepted() {}
  // Starts to write; the writer calls GenerateSession::WriteDone() when it may be called again,
  // not from inside this call.
  virtual void Write(v1::GenerateResponse response) = 0;
  // The stream's status. The session does not touch the writer afterwards.
  virtual void Finish(absl::Status status) = 0;
  // Gives the last response and the status at once, in place of Write and Finish.
  virtual void WriteLast(v1::GenerateResponse response, absl::Status status) = 0;
};

// Figures of a generation, for log and span.
struct SessionReport {
  int prompt_tokens = 0, cached_prompt_tokens = 0;
  int completion_tokens = 0;       // generated in this call
  engine::RequestTimings timings;  // as the engine reported them at the end

  // From the first token on.
  absl::Duration decode() const { return timings.total - timings.queue - timings.prefill; }
};

// Callbacks of a session. All are called without locks held, from any thread.
struct SessionHooks {
  // Tells the engine that a stop string was met: the sequence ends quietly.
  std::function<void(int index)> finish_sequence;
  // Tells the engine that the request is given up.
  std::function<void(absl::Status why)> cancel;
  // Tells the call that the write in flight has to end though the reader does not read;
  // WriteDone(false) follows, perhaps from inside. May also come when the stream has just finished.
  std::function<void(const absl::Status& why)> cut;
};

// One generation's answer: events of the engine in, responses out. Knows neither gRPC nor the
// engine. Text work is done on the threads of a pool and on those that WriteDone comes from, by
// one of them at a time, never on the engine's. Events that arrive while a write is in flight go
// out as one message. Unread output is bounded by the request's own limits and by kMaxUnreadBytes;
// above it the request is given up.
class GenerateSession : public std::enable_shared_from_this<GenerateSession> {
 public:
  static constexpr size_t kMaxUnreadBytes = 64 << 20;

  // Takes all of `generation` except its request, which is left for the engine. Writer, pool and
  // clock outlive the session's work, which ends with the writer's Finish.
  static std::shared_ptr<GenerateSession> Create(Generation& generation, ResponseWriter* writer,
                                                 SessionHooks hooks, WorkPool* pool,
                                                 std::shared_ptr<const ServedModel> model,
                                                 const Clock* clock,
                                                 size_t max_unread_bytes = kMaxUnreadBytes);

  // False if nothing is left to compute because everything was received before. The caller then
  // calls AnswerFromReceived() instead of submitting the request to the engine.
  bool needs_engine() const { return needs_engine_; }
  void AnswerFromReceived();

  // Its figures are complete when the writer's Finish is called.
  const SessionReport& report() const { return report_; }

  // The engine's sink; only queues the event and wakes the pool. Called on the engine thread.
  void OnEvent(engine::RequestEvent event);
  // Called when the last Write has ended, on any thread. With `ok` false the reader is gone.
  void WriteDone(bool ok);

 private:
  GenerateSession(Generation& generation, ResponseWriter* writer, SessionHooks hooks,
                  WorkPool* pool, std::shared_ptr<const ServedModel> model, const Clock* clock,
                  size_t max_unread_bytes);

  void Deliver();
  void Wake();
  void Process(engine::RequestEvent event);
  void ProcessEndings();
  void ProcessDelta(engine::SequenceDelta delta);
  void ProcessEnd(const engine::RequestEvent& event);
  void Complete(int cached_prompt_tokens, const engine::RequestTimings& timings);
  static size_t BytesOf(const engine::RequestEvent& event);

  // Set by the constructor.
  const std::shared_ptr<const ServedModel> model_;  // of which rules, format and queue have parts
  ResponseWriter* const writer_;
  const SessionHooks hooks_;
  WorkPool* const pool_;
  const Clock* const clock_;
  const size_t max_unread_bytes_;
  const bool needs_engine_;
  const bool collect_;
  const absl::Time start_;

  // Touched by whoever set busy_, one thread at a time.
  std::unique_ptr<StopRules> rules_;
  std::unique_ptr<AnswerFormat> format_;
  std::vector<AnswerSequence> sequences_;
  std::vector<std::optional<AnswerSequence::Output>> endings_;
  std::vector<int32_t> prompt_;  // kept where its tokens or their log-probabilities are requested
  int prompt_tokens_ = 0;
  int next_prompt_token_ = 0;    // place in the prompt; its end where no tokens are requested
  int next_prompt_logprob_ = 1;  // place in the prompt
  int completion_tokens_ = 0;
  uint32_t migrations_ = 0;
  bool inexact_ = false;
  ResponseQueue queue_;
  std::optional<absl::Status> status_;  // sent after the queued responses
  bool reader_gone_ = false;
  SessionReport report_;

  absl::Mutex mutex_;
  std::deque<engine::RequestEvent> events_ ABSL_GUARDED_BY(mutex_);
  size_t event_bytes_ ABSL_GUARDED_BY(mutex_) = 0;   // of events not yet in queue_
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // of queue_, without the write in flight
  // True while a thread delivers or a write is in flight.
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
  bool gave_up_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::server
