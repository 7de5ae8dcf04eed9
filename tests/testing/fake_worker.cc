// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/fake_worker.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo {
namespace {

constexpr absl::Duration kReportInterval = absl::Milliseconds(100);

}  // namespace

std::vector<float> FakeVector(const v1::EmbedInput& input) {
  float sum = 0;
  for (const char c : input.pair().query())
    sum -= static_cast<float>(static_cast<unsigned char>(c));
  for (const char c : input.pair().document()) {
    sum += static_cast<float>(static_cast<unsigned char>(c));
  }
  for (const char c : input.text()) sum += static_cast<float>(static_cast<unsigned char>(c));
  for (const uint32_t id : input.token_ids().ids()) sum += static_cast<float>(id);
  return {sum, static_cast<float>(input.text().size()), 0.1f};
}

class FakeWorker::Inference : public v1::InferenceService::Service {
 public:
  explicit Inference(FakeWorker* worker) : w_(worker) {}

  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    Call call = {.request = *request};
    std::string request_id;
    for (const auto& [key, value] : context->client_metadata()) {
      call.metadata.emplace(std::string(key.data(), key.size()),
                            std::string(value.data(), value.size()));
      if (key == "x-request-id") request_id.assign(value.data(), value.size());
    }
    call.is_cancelled = [context] { return context->IsCancelled(); };
    call.time_left = absl::FromChrono(context->deadline()) - absl::Now();
    size_t number;
    Script script;
    {
      absl::MutexLock lock(&w_->mutex_);
      number = w_->calls_.size();
      w_->calls_.push_back(call);
      script = w_->script_;
    }
    FakeGeneration generation(w_->worker_, *request, request_id);
    if (!generation.status().ok()) return common::ToGrpcStatus(generation.status());
    for (int i = 0;; ++i) {
      if (script) {
        if (const std::optional<absl::Status> status = script(call, i)) {
          return common::ToGrpcStatus(*status);
        }
      }
      if (context->IsCancelled()) {
        absl::MutexLock lock(&w_->mutex_);
        w_->calls_[number].cancelled = true;
        return grpc::Status::CANCELLED;
      }
      const std::optional<v1::GenerateResponse> response = generation.Next();
      if (!response.has_value()) return grpc::Status::OK;
      writer->Write(*response);
    }
  }

  grpc::Status Tokenize(grpc::ServerContext*, const v1::TokenizeRequest* request,
                        v1::TokenizeResponse* response) override {
    std::function<void()> script;
    {
      absl::MutexLock lock(&w_->mutex_);
      script = w_->tokenize_script_;
    }
    if (script) script();
    for (const char c : request->text()) response->add_token_ids(static_cast<unsigned char>(c));
    response->set_rendered_prompt(request->text());
    response->set_max_context_tokens(1024);
    return grpc::Status::OK;
  }

  grpc::Status Detokenize(grpc::ServerContext*, const v1::DetokenizeRequest* request,
                          v1::DetokenizeResponse* response) override {
    for (const uint32_t id : request->token_ids()) {
      response->mutable_text()->push_back(static_cast<char>(id));
    }
    return grpc::Status::OK;
  }

  grpc::Status GetTokenizer(grpc::ServerContext*, const v1::GetTokenizerRequest*,
                            v1::GetTokenizerResponse* response) override {
    response->set_config(R"({"eos_token":"</s>"})");
    return grpc::Status::OK;
  }

  grpc::Status Embed(grpc::ServerContext* context, const v1::EmbedRequest* request,
                     v1::EmbedResponse* response) override {
    EmbedScript script;
    {
      absl::MutexLock lock(&w_->mutex_);
      script = w_->embed_script_;
      w_->embeds_.push_back(*request);
      w_->num_embed_migrations_ +=
          static_cast<int>(context->client_metadata().count("x-continuo-move"));
    }
    if (script) {
      if (const std::optional<absl::Status> status = script(*request)) {
        return common::ToGrpcStatus(*status);
      }
    }
    for (const v1::EmbedInput& input : request->inputs()) {
      const std::vector<float> vector = FakeVector(input);
      response->add_embeddings()->mutable_values()->Assign(vector.begin(), vector.end());
    }
    response->mutable_usage()->set_prompt_tokens(7 * static_cast<uint32_t>(request->inputs_size()));
    response->mutable_usage()->set_cached_prompt_tokens(2);
    return grpc::Status::OK;
  }

  grpc::Status ListModels(grpc::ServerContext*, const v1::ListModelsRequest*,
                          v1::ListModelsResponse* response) override {
    v1::Model& model = *response->add_models();
    model.set_name(w_->worker_.model);
    model.set_architecture("FakeForCausalLM");
    model.set_max_context_tokens(1024);
    model.add_fingerprints(w_->worker_.fingerprint);
    model.set_num_workers(1);
    return grpc::Status::OK;
  }

 private:
  FakeWorker* const w_;
};

class FakeWorker::Load : public v1::WorkerService::Service {
 public:
  explicit Load(FakeWorker* worker) : w_(worker) {}

  grpc::Status WatchLoad(grpc::ServerContext* context, const v1::WatchLoadRequest*,
                         grpc::ServerWriter<v1::WatchLoadResponse>* writer) override {
    uint64_t seen = 0;
    int number;
    {
      absl::MutexLock lock(&w_->mutex_);
      number = ++w_->num_watches_;
    }
    while (!context->IsCancelled()) {
      v1::WatchLoadResponse report;
      bool silent;
      {
        absl::MutexLock lock(&w_->mutex_);
        if (w_->killed_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "killed");
        if (number <= w_->end_watches_) return grpc::Status::OK;
        seen = w_->report_version_;
        report = w_->report_;
        silent = w_->silent_;
      }
      if (!silent && !writer->Write(report)) break;
      absl::MutexLock lock(&w_->mutex_);
      const auto news = [&]() ABSL_SHARED_LOCKS_REQUIRED(w_->mutex_) {
        return w_->killed_ || w_->report_version_ != seen;
      };
      w_->mutex_.AwaitWithTimeout(absl::Condition(&news), kReportInterval);
    }
    return grpc::Status::OK;
  }

  grpc::Status WatchSteps(grpc::ServerContext* context, const v1::WatchStepsRequest*,
                          grpc::ServerWriter<v1::WatchStepsResponse>* writer) override {
    size_t next;
    {
      absl::MutexLock lock(&w_->mutex_);
      if (!w_->step_watches_refused_.ok()) return w_->step_watches_refused_;
      ++w_->num_step_watches_;
      next = w_->steps_.size();
    }
    writer->SendInitialMetadata();
    while (!context->IsCancelled()) {
      v1::WatchStepsResponse response;
      {
        absl::MutexLock lock(&w_->mutex_);
        const auto news = [&]() ABSL_SHARED_LOCKS_REQUIRED(w_->mutex_) {
          return w_->killed_ || w_->steps_.size() > next;
        };
        // A call that is cancelled wakes nobody.
        if (!w_->mutex_.AwaitWithTimeout(absl::Condition(&news), absl::Milliseconds(10))) continue;
        if (w_->killed_) break;
        response = w_->steps_[next++];
      }
      if (!writer->Write(response)) break;
    }
    absl::MutexLock lock(&w_->mutex_);
    --w_->num_step_watches_;
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the fake worker ends");
  }

  grpc::Status LoadAdapter(grpc::ServerContext*, const v1::LoadAdapterRequest* request,
                           v1::LoadAdapterResponse* response) override {
    response->mutable_adapter()->set_model(request->name());
    return UpdateAdapter(request->name(), request->path());
  }
  grpc::Status UnloadAdapter(grpc::ServerContext*, const v1::UnloadAdapterRequest* request,
                             v1::UnloadAdapterResponse*) override {
    return UpdateAdapter(request->name(), "");
  }

 private:
  grpc::Status UpdateAdapter(const std::string& name, const std::string& path) {
    AdapterScript script;
    {
      absl::MutexLock lock(&w_->mutex_);
      script = w_->adapter_script_;
    }
    return script ? script(name, path) : grpc::Status(grpc::StatusCode::UNIMPLEMENTED, "");
  }

  FakeWorker* const w_;
};

FakeWorker::FakeWorker(FakeGeneration::Worker worker, int port, const std::string& host)
    : worker_(std::move(worker)), host_(host), port_(port) {
  report_.set_worker(worker_.name);
  report_.set_model(worker_.model);
  report_.set_fingerprint(worker_.fingerprint);
  report_.set_tokenizer_fingerprint(worker_.tokenizer_fingerprint);
  report_.set_state(v1::WORKER_STATE_SERVING);
  report_.set_total_kv_blocks(1000);
  report_.set_block_size_tokens(16);
  report_.set_max_running_requests(64);
  Start();
}

FakeWorker::~FakeWorker() { Kill(); }

void FakeWorker::Start() {
  {
    absl::MutexLock lock(&mutex_);
    killed_ = false;
    report_.set_incarnation(absl::StrCat(worker_.name, "-", ++incarnation_));
  }
  inference_ = std::make_unique<Inference>(this);
  load_ = std::make_unique<Load>(this);
  auto server = common::GrpcServer::Start({.listen = absl::StrCat(host_, ":", port_)},
                                          {inference_.get(), load_.get()});
  CONTINUO_CHECK(server.ok());
  server_ = *std::move(server);
  port_ = server_->port();
}

void FakeWorker::Kill() {
  if (server_ == nullptr) return;
  {
    absl::MutexLock lock(&mutex_);
    killed_ = true;
  }
  // Cancels what is open at once; the client sees the connection close.
  server_->Shutdown(absl::InfinitePast());
  server_.reset();
}

void FakeWorker::Restart() {
  Kill();
  Start();
}

std::string FakeWorker::address() const { return absl::StrCat(host_, ":", port_); }

void FakeWorker::SetScript(Script script) {
  absl::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

void FakeWorker::SetAdapterScript(AdapterScript script) {
  absl::MutexLock lock(&mutex_);
  adapter_script_ = std::move(script);
}

void FakeWorker::SetEmbedScript(EmbedScript script) {
  absl::MutexLock lock(&mutex_);
  embed_script_ = std::move(script);
}

std::vector<v1::EmbedRequest> FakeWorker::embeds() const {
  absl::MutexLock lock(&mutex_);
  return embeds_;
}

int FakeWorker::num_embed_migrations() const {
  absl::MutexLock lock(&mutex_);
  return num_embed_migrations_;
}

void FakeWorker::SetTokenizeScript(std::function<void()> script) {
  absl::MutexLock lock(&mutex_);
  tokenize_script_ = std::move(script);
}

void FakeWorker::SetReport(const std::function<void(v1::WatchLoadResponse&)>& change) {
  absl::MutexLock lock(&mutex_);
  change(report_);
  ++report_version_;
}

void FakeWorker::SetState(v1::WorkerState state) {
  SetReport([&](v1::WatchLoadResponse& report) { report.set_state(state); });
}

void FakeWorker::SetHealth(bool serving) { server_->SetServing("", serving); }

void FakeWorker::SetSilent(bool silent) {
  absl::MutexLock lock(&mutex_);
  silent_ = silent;
  ++report_version_;
}

void FakeWorker::EndWatches() {
  absl::MutexLock lock(&mutex_);
  end_watches_ = num_watches_;
  ++report_version_;
}

void FakeWorker::SendSteps(const v1::WatchStepsResponse& response) {
  absl::MutexLock lock(&mutex_);
  steps_.push_back(response);
}

void FakeWorker::RefuseStepWatches(grpc::Status status) {
  absl::MutexLock lock(&mutex_);
  step_watches_refused_ = std::move(status);
}

bool FakeWorker::WaitForStepWatches(int number) const {
  absl::MutexLock lock(&mutex_);
  const auto condition = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
    return num_step_watches_ == number;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&condition), absl::Minutes(1));
}

int FakeWorker::num_watches() const {
  absl::MutexLock lock(&mutex_);
  return num_watches_;
}

std::vector<FakeWorker::Call> FakeWorker::calls() const {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

size_t FakeWorker::num_calls() const { return calls().size(); }

bool FakeWorker::WaitForCalls(const std::function<bool(const std::vector<Call>&)>& done) const {
  absl::MutexLock lock(&mutex_);
  const auto condition = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return done(calls_); };
  return mutex_.AwaitWithTimeout(absl::Condition(&condition), absl::Minutes(1));
}

}  // namespace continuo
