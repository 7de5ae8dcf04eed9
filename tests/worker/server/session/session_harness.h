// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "services/base/clock.h"
#include "services/worker/engine/engine.h"
#include "services/worker/server/session/convert.h"
#include "services/worker/server/session/generate_session.h"
#include "services/worker/server/session/served_model.h"
#include "services/worker/server/session/work_pool.h"
#include "tests/testing/fake_executor.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {

// The vocabulary of tests/worker/text/testdata/byte_level: ids below 256 are bytes.
inline constexpr int32_t kEos = 268;
inline constexpr int kVocab = 272;

// Returns that model, with a context of 128 tokens.
inline server::ServedModel MakeServedModel(const text::TextModel* text) {
  server::ServedModel model;
  model.name = "bytes";
  model.architecture = "FakeForCausalLM";
  model.worker = "w0";
  model.max_context_tokens = 128;
  model.vocab_size = kVocab;
  model.weight_format = "fp32";
  model.fingerprint = "F";
  model.tokenizer_fingerprint = "T";
  model.eos_ids = {kEos};
  model.tokenizer_info = text->TokenizerInfo(kEos);
  model.text = text;
  server::FinishServedModel(model);
  return model;
}

// The text alone of what an answer says.
inline std::string TextOf(const server::AnswerSequence::Said& said) {
  std::string text;
  for (const server::AnswerSequence::Said::Part& part : said.parts()) text += part.text;
  return text;
}

// Counts up, so that every random number is known.
inline std::function<uint64_t()> CountingRandom() {
  return [next = std::make_shared<uint64_t>(uint64_t{77} << 11)] { return *next += 1 << 11; };
}

// Keeps what a session writes. Writes end when the test says so, or on the pool's thread.
class RecordingWriter : public server::ResponseWriter {
 public:
  // If `pool` is null the test calls GenerateSession::WriteDone itself.
  explicit RecordingWriter(server::WorkPool* pool = nullptr) : pool_(pool) {}

  // Called before the first write, where there is a pool.
  void Attach(std::weak_ptr<server::GenerateSession> session) { session_ = std::move(session); }

  void SendAccepted() override { ++num_accepted_; }
  void Write(v1::GenerateResponse response) override {
    {
      absl::MutexLock lock(&mutex_);
      responses_.push_back(std::move(response));
    }
    if (pool_ == nullptr) return;
    pool_->Post([session = session_.lock()] { session->WriteDone(true); });
  }
  void Finish(absl::Status status) override {
    status_ = std::move(status);
    finished_.Notify();
  }
  void WriteLast(v1::GenerateResponse response, absl::Status status) override {
    {
      absl::MutexLock lock(&mutex_);
      responses_.push_back(std::move(response));
    }
    wrote_last_ = true;
    Finish(std::move(status));
  }

  std::vector<v1::GenerateResponse> responses() const {
    absl::MutexLock lock(&mutex_);
    return responses_;
  }
  // Returns whether the status came with a response.
  bool wrote_last() const { return wrote_last_; }
  bool finished() const { return finished_.HasBeenNotified(); }
  int num_accepted() const { return num_accepted_; }
  // Blocks until the stream has its status.
  const absl::Status& Wait() const {
    finished_.WaitForNotification();
    return status_;
  }

 private:
  server::WorkPool* const pool_;
  std::weak_ptr<server::GenerateSession> session_;
  mutable absl::Mutex mutex_;
  std::vector<v1::GenerateResponse> responses_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_;
  std::atomic<int> num_accepted_ = 0;
  std::atomic<bool> wrote_last_ = false;
  absl::Notification finished_;
};

// Requests through session and engine on a FakeExecutor, without a transport.
class SessionHarness {
 public:
  explicit SessionHarness(std::unique_ptr<text::TextModel> text = OpenTestModel("byte_level"))
      : text_(std::move(text)),
        model_(MakeServedModel(text_.get())),
        executor_({.num_blocks = 2048, .block_size = 4, .vocab_size = kVocab}),
        engine_({.num_blocks = 2048,
                 .block_size = 4,
                 .vocab_size = kVocab,
                 .max_batch_tokens = 64,
                 .max_prefill_chunk = 16,
                 .calibrate = false},
                &executor_, &clock_, &metrics_),
        thread_([this] { EXPECT_TRUE(engine_.Run().ok()); }) {}
  ~SessionHarness() {
    engine_.Stop();
    thread_.join();
  }

  struct Outcome {
    std::vector<v1::GenerateResponse> responses;
    absl::Status status;
  };
  Outcome Run(const v1::GenerateRequest& request) {
    server::CallInfo call;
    call.now = clock_.Now();
    call.random = random_;
    absl::StatusOr<server::Generation> generation =
        server::PrepareGeneration(request, call, model_, key_);
    if (!generation.ok()) return {{}, generation.status()};
    RecordingWriter writer(&writes_);
    const engine::RequestId id = next_id_++;
    generation->request.id = id;
    auto session = server::GenerateSession::Create(
        *generation, &writer,
        {.finish_sequence = [this, id](int index) { engine_.FinishSequence(id, index); },
         .cancel = [this, id](absl::Status why) { engine_.Cancel(id, std::move(why)); },
         .cut = [](const absl::Status&) {}},
        &deliveries_, {std::shared_ptr<const void>(), &model_}, &clock_);
    writer.Attach(session);
    if (!session->needs_engine()) {
      session->AnswerFromReceived();
    } else {
      const absl::Status submitted = engine_.Submit(std::move(generation->request),
                                                    [this, session](engine::RequestEvent event) {
                                                      session->OnEvent(std::move(event));
                                                      // Events that come while one is delivered
                                                      // share a response: each has its own like
                                                      // this.
                                                      Drain(&deliveries_);
                                                      Drain(&writes_);
                                                    });
      if (!submitted.ok()) return {{}, submitted};
    }
    const absl::Status status = writer.Wait();
    return {writer.responses(), status};
  }

  // Runs the request undisturbed, and then once for each place between two of its responses: the
  // stream is cut there, and a continuation brings what was received. Returns the responses that
  // the client has in the end, of the undisturbed run first.
  std::vector<std::vector<v1::GenerateResponse>> RunCutEverywhere(
      const v1::GenerateRequest& request) {
    const Outcome whole = Run(request);
    EXPECT_TRUE(whole.status.ok()) << whole.status;
    std::vector<std::vector<v1::GenerateResponse>> streams = {whole.responses};
    for (size_t cut = 1; cut < whole.responses.size(); ++cut) {
      v1::GenerateRequest again = request;
      v1::GenerateResponse& received = *again.mutable_continuation()->mutable_received();
      auto& joined = streams.emplace_back();
      for (size_t i = 0; i < cut; ++i) {
        received.MergeFrom(whole.responses[i]);
        joined.push_back(whole.responses[i]);
      }
      const Outcome rest = Run(again);
      EXPECT_TRUE(rest.status.ok()) << rest.status << " after " << cut << " responses";
      joined.insert(joined.end(), rest.responses.begin(), rest.responses.end());
    }
    return streams;
  }

  server::ServedModel& model() { return model_; }
  FakeExecutor& executor() { return executor_; }

 private:
  static void Drain(server::WorkPool* pool) {
    absl::Notification drained;
    pool->Post([&drained] { drained.Notify(); });
    drained.WaitForNotification();
  }

  const SystemClock clock_;
  std::unique_ptr<text::TextModel> text_;
  server::ServedModel model_;
  std::function<uint64_t()> random_ = CountingRandom();
  const server::SaltKey key_{random_};
  engine::EngineMetrics metrics_;
  FakeExecutor executor_;
  engine::Engine engine_;
  engine::RequestId next_id_ = 1;
  server::WorkPool deliveries_{1};
  server::WorkPool writes_{1};
  std::thread thread_;
};

}  // namespace continuo::testing
