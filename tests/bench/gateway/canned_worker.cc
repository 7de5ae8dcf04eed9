// SPDX-License-Identifier: Apache-2.0
// A worker without a model, for measuring gateways: every generation gets as many tokens as it asks
// for, some a message, at once or at a pace; a continuation gets the rest. Prints "listening
// ADDRESS".
#include <grpcpp/alarm.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/time/clock.h"
#include "continuo/v1/inference.grpc.pb.h"
#include "continuo/v1/worker.grpc.pb.h"
#include "services/common/flags.h"
#include "services/common/grpc/grpc_server.h"
#include "services/common/shutdown.h"

namespace continuo {
namespace {

constexpr char kModel[] = "canned";

struct Options {
  std::string listen = "127.0.0.1:0";
  int tokens_per_message = 1;
  absl::Duration interval;  // between two messages of a stream
};

// One answer: `accepted` in the first message, the summary in the last, which may be the same.
class Generation : public grpc::ServerWriteReactor<v1::GenerateResponse> {
 public:
  Generation(const v1::GenerateRequest& request, const Options& options)
      : options_(options),
        prompt_tokens_(static_cast<uint32_t>(request.token_ids().ids_size())),
        max_tokens_(request.stopping().max_tokens()) {
    v1::Accepted& accepted = *response_.mutable_accepted();
    accepted.set_request_id(request.request_id());
    accepted.set_model(kModel);
    accepted.set_seed(1);
    accepted.set_fingerprint("F");
    accepted.set_tokenizer_fingerprint("T");
    accepted.set_worker("canned");
    if (request.continuation().has_received()) {
      const v1::GenerateResponse& received = request.continuation().received();
      sequence_ = received.sequence() + 1;
      for (const v1::Delta& delta : received.deltas()) {
        sent_ = std::min(max_tokens_, sent_ + static_cast<uint32_t>(delta.token_ids_size()));
      }
    }
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    response_.Clear();
    if (!ok) {
      Finish(grpc::Status::CANCELLED);
    } else if (options_.interval > absl::ZeroDuration()) {
      alarm_.Set(absl::ToChronoTime(absl::Now() + options_.interval),
                 [this](bool) { WriteNext(); });
    } else {
      WriteNext();
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    v1::Delta& delta = *response_.add_deltas();
    const uint32_t count =
        std::min<uint32_t>(max_tokens_ - sent_, static_cast<uint32_t>(options_.tokens_per_message));
    for (uint32_t i = 0; i < count; ++i) {
      delta.add_token_ids(1000 + sent_ + i);
      delta.mutable_text()->append("word ");
    }
    sent_ += count;
    response_.set_sequence(sequence_++);
    done_ = sent_ >= max_tokens_;
    if (done_) {
      delta.set_finish_reason(v1::FINISH_REASON_LENGTH);
      v1::Usage& usage = *response_.mutable_summary()->mutable_usage();
      usage.set_prompt_tokens(prompt_tokens_);
      usage.set_completion_tokens(sent_);
    }
    if (done_) {
      StartWriteAndFinish(&response_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      StartWrite(&response_);
    }
  }

  const Options& options_;
  const uint32_t prompt_tokens_, max_tokens_;
  uint32_t sent_ = 0;
  uint64_t sequence_ = 0;
  bool done_ = false;
  v1::GenerateResponse response_;
  grpc::Alarm alarm_;
};

class CannedInference
    : public v1::InferenceService::WithCallbackMethod_Generate<
          v1::InferenceService::WithCallbackMethod_ListModels<
              v1::InferenceService::WithCallbackMethod_GetModel<v1::InferenceService::Service>>> {
 public:
  explicit CannedInference(const Options& options) : options_(options) {}

  grpc::ServerWriteReactor<v1::GenerateResponse>* Generate(
      grpc::CallbackServerContext*, const v1::GenerateRequest* request) override {
    return new Generation(*request, options_);
  }
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest*,
                                       v1::ListModelsResponse* response) override {
    Describe(response->add_models());
    return Ok(context);
  }
  grpc::ServerUnaryReactor* GetModel(grpc::CallbackServerContext* context,
                                     const v1::GetModelRequest*,
                                     v1::GetModelResponse* response) override {
    Describe(response->mutable_model());
    return Ok(context);
  }

 private:
  static void Describe(v1::Model* model) {
    model->set_name(kModel);
    model->set_architecture("CannedForCausalLM");
    model->set_max_context_tokens(1 << 20);
    model->set_num_workers(1);
    model->add_capabilities(v1::CAPABILITY_CHAT);
  }
  static grpc::ServerUnaryReactor* Ok(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  const Options options_;
};

// Reports an empty worker twice a second.
class Watch : public grpc::ServerWriteReactor<v1::WatchLoadResponse> {
 public:
  Watch() { Report(); }
  void OnWriteDone(bool ok) override {
    if (!ok) return End();
    alarm_.Set(absl::ToChronoTime(absl::Now() + absl::Milliseconds(500)), [this](bool) {
      if (cancelled_) return End();
      Report();
    });
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override { delete this; }

 private:
  void Report() {
    load_.set_worker("canned");
    load_.set_incarnation("1");
    load_.set_state(v1::WORKER_STATE_SERVING);
    load_.set_model(kModel);
    load_.set_fingerprint("F");
    load_.set_tokenizer_fingerprint("T");
    load_.set_total_kv_blocks(1 << 20);
    load_.set_block_size_tokens(16);
    load_.set_max_running_requests(1 << 20);
    load_.set_steps(load_.steps() + 1);
    StartWrite(&load_);
  }
  void End() { Finish(grpc::Status::CANCELLED); }

  v1::WatchLoadResponse load_;
  grpc::Alarm alarm_;
  std::atomic<bool> cancelled_ = false;
};

class CannedLoad
    : public v1::WorkerService::WithCallbackMethod_WatchLoad<v1::WorkerService::Service> {
 public:
  grpc::ServerWriteReactor<v1::WatchLoadResponse>* WatchLoad(grpc::CallbackServerContext*,
                                                             const v1::WatchLoadRequest*) override {
    return new Watch();
  }
};

int Main(int argc, char** argv) {
  Options options;
  common::Flags flags("canned_worker", "answers every generation without a model");
  flags.Address("listen", &options.listen, "address to serve on");
  flags.Integer("tokens_per_message", &options.tokens_per_message, 1, 1 << 20, "tokens a message");
  flags.Duration("interval", &options.interval, absl::ZeroDuration(), absl::Hours(1),
                 "between two messages of a stream; 0 is as fast as they are taken");
  if (const std::optional<int> exit_code = flags.Parse(argc, argv)) return *exit_code;
  common::ShutdownSignal signal;
  CannedInference inference(options);
  CannedLoad load;
  absl::StatusOr<std::unique_ptr<common::GrpcServer>> server =
      common::GrpcServer::Start({.listen = options.listen,
                                 .max_receive_bytes = 64 << 20,
                                 .health_names = {"continuo.v1.InferenceService"}},
                                {&inference, &load});
  if (!server.ok()) {
    std::cerr << server.status() << "\n";
    return 1;
  }
  std::cout << "listening " << (*server)->address() << std::endl;
  signal.Wait();
  (*server)->Shutdown(absl::Now());
  return 0;
}

}  // namespace
}  // namespace continuo

int main(int argc, char** argv) { return continuo::Main(argc, argv); }
