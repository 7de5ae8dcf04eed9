// SPDX-License-Identifier: Apache-2.0
#include "services/cli/bench/load_generator.h"

#include <grpcpp/client_context.h>
#include <grpcpp/support/client_callback.h>

#include <utility>

#include "absl/time/clock.h"
#include "services/base/status_macros.h"
#include "services/cli/client/connection.h"
#include "services/common/grpc/grpc_status.h"

namespace continuo::cli {

// One request. The generator owns it until OnDone.
class LoadGenerator::Call : public grpc::ClientReadReactor<v1::GenerateResponse> {
 public:
  Call(LoadGenerator* generator, const PlannedRequest& planned) : generator_(generator) {
    const BenchFlags& flags = generator->flags_;
    request_.set_model(flags.model);
    const std::vector<uint32_t> ids = generator->workload_->PromptIds(planned);
    request_.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    request_.mutable_sampling()->set_temperature(static_cast<float>(flags.temperature));
    request_.mutable_sampling()->set_seed(flags.seed + planned.index);
    request_.mutable_stopping()->set_max_tokens(planned.output_tokens);
    request_.mutable_stopping()->set_ignore_eos(flags.ignore_eos);
    request_.mutable_cache()->set_bypass(flags.bypass_cache);
    record_.prompt_tokens = planned.prompt_tokens;
    AddMetadata(flags.connection, context_);
    if (flags.timeout != absl::InfiniteDuration()) {
      context_.set_deadline(absl::ToChronoTime(absl::Now() + flags.timeout));
    }
  }
  void Run(v1::InferenceService::Stub* stub) {
    start_ = last_ = SteadyClock::now();
    stub->async()->Generate(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    size_t num_tokens = 0;
    for (const v1::Delta& delta : response_.deltas()) num_tokens += delta.token_ids_size();
    if (num_tokens > 0) CountTokens(num_tokens);
    if (response_.has_summary()) {
      record_.cached_prompt_tokens = response_.summary().usage().cached_prompt_tokens();
      record_.migrations = response_.summary().migrations();
    }
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    record_.status = common::FromGrpcStatus(status);
    record_.duration = SecondsBetween(start_, SteadyClock::now());
    generator_->OnEnd(this, std::move(record_));
  }

 private:
  void CountTokens(size_t num_tokens) {
    const SteadyClock::time_point now = SteadyClock::now();
    if (record_.output_tokens == 0) {
      // Tokens that come with the first one took no time of their own.
      record_.time_to_first_token = SecondsBetween(start_, now);
      generator_->OnFirstToken(now);
      record_.inter_token.insert(record_.inter_token.end(), num_tokens - 1, 0.0f);
    } else {
      const double gap = SecondsBetween(last_, now) / static_cast<double>(num_tokens);
      record_.inter_token.insert(record_.inter_token.end(), num_tokens, static_cast<float>(gap));
    }
    last_ = now;
    record_.output_tokens += num_tokens;
    generator_->output_tokens_.fetch_add(num_tokens, std::memory_order_relaxed);
  }

  LoadGenerator* const generator_;
  SteadyClock::time_point start_;
  SteadyClock::time_point last_;  // When the last tokens arrived.
  grpc::ClientContext context_;
  v1::GenerateRequest request_;
  v1::GenerateResponse response_;
  RequestRecord record_;
};

absl::Status LoadGenerator::Connect() {
  for (uint32_t i = 0; i < flags_.connections; ++i) {
    std::shared_ptr<grpc::Channel> channel;
    ASSIGN_OR_RETURN(channel, OpenChannel(flags_.connection, static_cast<int>(i)));
    stubs_.push_back(v1::InferenceService::NewStub(channel));
  }
  return absl::OkStatus();
}

void LoadGenerator::Start(const PlannedRequest& request) {
  const auto call = std::make_shared<Call>(this, request);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return;
    calls_[call.get()] = call;
  }
  call->Run(stub(request.index));
}

void LoadGenerator::OnEnd(Call* call, RequestRecord record) {
  std::shared_ptr<Call> last;
  {
    absl::MutexLock lock(&mutex_);
    last = std::move(calls_[call]);
  }
  // Whoever sees that no call is in flight may destroy the generator and its channels.
  last.reset();
  absl::MutexLock lock(&mutex_);
  records_.push_back(std::move(record));
  calls_.erase(call);
}

void LoadGenerator::OnFirstToken(SteadyClock::time_point now) {
  const Moment moment = {now, output_tokens()};
  absl::MutexLock lock(&mutex_);
  if (++num_begun_ == flags_.concurrency) full_ = moment;
  last_begun_ = moment;
}

SteadyState LoadGenerator::steady() const {
  absl::MutexLock lock(&mutex_);
  if (num_begun_ <= flags_.concurrency || last_begun_.time <= full_.time) return {};
  return {.seconds = SecondsBetween(full_.time, last_begun_.time),
          .begun = num_begun_ - flags_.concurrency,
          .output_tokens = last_begun_.output_tokens - full_.output_tokens};
}

void LoadGenerator::Cancel() {
  std::map<Call*, std::shared_ptr<Call>> calls;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    calls = calls_;
  }
  // The mutex is not held here, since a cancelled call may call back from within.
  for (const auto& [call, owner] : calls) {
    if (owner != nullptr) owner->Cancel();  // it has not ended
  }
}

void LoadGenerator::WaitForRoom(size_t max_in_flight, SteadyClock::time_point until) {
  absl::MutexLock lock(&mutex_);
  const auto ready = [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return cancelled_ || calls_.size() < max_in_flight;
  };
  mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(until - SteadyClock::now()));
}

size_t LoadGenerator::num_in_flight() const {
  absl::MutexLock lock(&mutex_);
  return calls_.size();
}

size_t LoadGenerator::num_finished() const {
  absl::MutexLock lock(&mutex_);
  return records_.size();
}

bool LoadGenerator::cancelled() const {
  absl::MutexLock lock(&mutex_);
  return cancelled_;
}

std::vector<RequestRecord> LoadGenerator::TakeRecords() {
  absl::MutexLock lock(&mutex_);
  return std::move(records_);
}

}  // namespace continuo::cli
