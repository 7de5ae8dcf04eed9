// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/server_context.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"

namespace continuo::testing {

// A fake server. Its tokens depend on everything that a continuation has to keep: the prompt, the
// seed (sent in Accepted), the sequence's index and all ids before. Token 7 ends a sequence unless
// ignore_eos is set. Each call follows the next step of the script.
class FakeInference : public v1::InferenceService::Service {
 public:
  struct Step {
    int num_responses = -1;  // The call ends with `status` after these; -1 sends all.
    absl::Status status;
    bool hang = false;           // The call hangs until the client is gone, instead of ending.
    bool skip_a_number = false;  // The second response's sequence is wrong.
  };
  static constexpr uint32_t kVocabulary = 32;

  void SetScript(std::vector<Step> script) {
    absl::MutexLock lock(&mutex_);
    script_ = std::move(script);
  }
  // From now on the n-th answer of a conversation is the n-th of these, a response for each delta.
  void SetAnswers(std::vector<std::vector<v1::Delta>> answers) {
    absl::MutexLock lock(&mutex_);
    answers_ = std::move(answers);
  }
  std::vector<v1::GenerateRequest> requests() {
    absl::MutexLock lock(&mutex_);
    return requests_;
  }
  // Blocks until a call hangs.
  void AwaitHanging() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&hanging_));
  }

  static std::string Word(uint32_t id) { return absl::StrCat("w", id, " "); }

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Step step;
    std::vector<std::vector<v1::Delta>> answers;
    {
      absl::MutexLock lock(&mutex_);
      requests_.push_back(*request);
      if (!script_.empty()) {
        step = script_.front();
        script_.erase(script_.begin());
      }
      answers = answers_;
    }
    if (!answers.empty()) return SendAnswer(*request, step, answers, *writer);
    const v1::GenerateResponse& received = request->continuation().received();
    v1::Accepted accepted = received.accepted();
    if (!received.has_accepted()) {
      accepted.set_request_id("made");
      accepted.set_model("fake");
      accepted.set_seed(request->sampling().has_seed() ? request->sampling().seed() : ++next_seed_);
      accepted.set_fingerprint("F");
      accepted.set_worker("w0");
    } else {
      accepted.set_migrations(accepted.migrations() + 1);
    }
    const size_t n = std::max(1u, request->sampling().num_sequences());
    std::vector<std::vector<uint32_t>> ids(n);
    std::vector<bool> finished(n);
    for (const v1::Delta& delta : received.deltas()) {
      ids[delta.index()].insert(ids[delta.index()].end(), delta.token_ids().begin(),
                                delta.token_ids().end());
      if (delta.finish_reason() != 0) finished[delta.index()] = true;
    }
    uint64_t sequence = request->continuation().has_received() ? received.sequence() + 1 : 0;
    bool first = true;
    int num_sent = 0;
    const auto send = [&](v1::GenerateResponse response) {
      if (num_sent == step.num_responses) return false;
      response.set_sequence(sequence++);
      if (step.skip_a_number && num_sent == 0) ++sequence;
      if (first) *response.mutable_accepted() = accepted;
      first = false;
      ++num_sent;
      return writer->Write(response);
    };
    const auto end = [&] {
      if (step.hang) {
        absl::MutexLock lock(&mutex_);
        hanging_ = true;
        const auto gone = [&] { return context->IsCancelled(); };
        while (!gone()) mutex_.AwaitWithTimeout(absl::Condition(&never_), absl::Milliseconds(5));
        return grpc::Status::CANCELLED;
      }
      return common::ToGrpcStatus(step.status);
    };
    uint32_t completion = 0;
    while (true) {
      v1::GenerateResponse response;
      for (size_t i = 0; i < n; ++i) {
        if (finished[i]) continue;
        const uint32_t id = Next(*request, accepted.seed(), i, ids[i]);
        ids[i].push_back(id);
        v1::Delta& delta = *response.add_deltas();
        delta.set_index(static_cast<uint32_t>(i));
        delta.add_token_ids(id);
        const bool eos = id == 7 && !request->stopping().ignore_eos();
        if (!eos) delta.set_text(Word(id));
        if (eos || ids[i].size() >= request->stopping().max_tokens()) {
          finished[i] = true;
          delta.set_finish_reason(eos ? v1::FINISH_REASON_STOP : v1::FINISH_REASON_LENGTH);
        }
      }
      if (response.deltas_size() == 0) break;
      if (!send(std::move(response))) return end();
    }
    for (const auto& sequence_ids : ids) completion += sequence_ids.size();
    v1::GenerateResponse response;
    response.mutable_summary()->mutable_usage()->set_completion_tokens(completion);
    response.mutable_summary()->mutable_usage()->set_prompt_tokens(5);
    response.mutable_summary()->mutable_usage()->set_cached_prompt_tokens(2);
    response.mutable_summary()->set_migrations(accepted.migrations());
    if (!send(std::move(response))) return end();
    return end();
  }

  grpc::Status GetModel(grpc::ServerContext*, const v1::GetModelRequest*,
                        v1::GetModelResponse* response) override {
    response->mutable_model()->set_name("fake");
    response->mutable_model()->set_vocabulary_size(kVocabulary);
    response->mutable_model()->set_max_context_tokens(256);
    return grpc::Status::OK;
  }

 private:
  // The responses that the client does not have yet, up to those of the step.
  static grpc::Status SendAnswer(const v1::GenerateRequest& request, const Step& step,
                                 const std::vector<std::vector<v1::Delta>>& answers,
                                 grpc::ServerWriter<v1::GenerateResponse>& writer) {
    size_t number = 0;
    for (const v1::ChatMessage& message : request.conversation().messages()) {
      if (message.role() == "assistant") ++number;
    }
    if (number >= answers.size()) return grpc::Status(grpc::StatusCode::INTERNAL, "no answer");
    const std::vector<v1::Delta>& deltas = answers[number];
    uint64_t next = request.continuation().has_received()
                        ? request.continuation().received().sequence() + 1
                        : 0;
    for (int sent = 0; next <= deltas.size() && sent != step.num_responses; ++next, ++sent) {
      v1::GenerateResponse response;
      response.set_sequence(next);
      if (sent == 0) response.mutable_accepted()->set_seed(1);
      if (next < deltas.size()) *response.add_deltas() = deltas[next];
      if (next == deltas.size()) response.mutable_summary();
      writer.Write(response);
    }
    return common::ToGrpcStatus(step.status);
  }

  static uint32_t Next(const v1::GenerateRequest& request, uint64_t seed, size_t index,
                       const std::vector<uint32_t>& ids) {
    std::string text = absl::StrCat(request.text(), "|", seed, "|", index, "|");
    for (const v1::ChatMessage& m : request.conversation().messages()) {
      absl::StrAppend(&text, m.role(), ":", m.content(), "|");
    }
    for (const uint32_t id : ids) absl::StrAppend(&text, id, ",");
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return static_cast<uint32_t>((hash ^ (hash >> 32)) % kVocabulary);
  }

  absl::Mutex mutex_;
  std::vector<Step> script_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::vector<v1::Delta>> answers_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::GenerateRequest> requests_ ABSL_GUARDED_BY(mutex_);
  bool hanging_ ABSL_GUARDED_BY(mutex_) = false;
  bool never_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<uint64_t> next_seed_ = 1000;
};

// A fake worker whose WatchLoad sends one report and stays open until the client is gone.
class FakeWorkerService : public v1::WorkerService::CallbackService {
 public:
  explicit FakeWorkerService(v1::WatchLoadResponse load) : load_(std::move(load)) {}
  grpc::ServerWriteReactor<v1::WatchLoadResponse>* WatchLoad(grpc::CallbackServerContext*,
                                                             const v1::WatchLoadRequest*) override {
    struct Stream : grpc::ServerWriteReactor<v1::WatchLoadResponse> {
      explicit Stream(const v1::WatchLoadResponse* load) { StartWrite(load); }
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Stream(&load_);
  }

 private:
  const v1::WatchLoadResponse load_;
};

}  // namespace continuo::testing
