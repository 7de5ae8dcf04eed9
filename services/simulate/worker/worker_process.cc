// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/worker/worker_process.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/protocol/proto_time.h"
#include "services/simulate/worker/answer.h"
#include "services/worker/engine/estimate/calibration.h"
#include "services/worker/model/executor.h"

namespace continuo::simulate {
namespace {

// The intervals that gateways ask for (WorkerPoolOptions).
constexpr absl::Duration kMinReportInterval = absl::Milliseconds(100);
constexpr absl::Duration kMaxReportInterval = absl::Milliseconds(500);

engine::EngineOptions EngineOptionsOf(const profile::WorkerProfile& profile) {
  engine::EngineOptions options = profile.engine;
  options.vocab_size = kVocabularySize;
  options.drafter = nullptr;
  return options;
}

// Lets Calibrate measure the profile: the device of a clock of its own.
class ProfileExecutor : public model::Executor, public Clock {
 public:
  explicit ProfileExecutor(const profile::StepTime* step) : step_(*step) {}

  absl::Time Now() const override { return absl::UnixEpoch() + elapsed_; }
  absl::Status Start(const model::StepPlan& plan, model::MaskFiller) override {
    elapsed_ += step_.Of(profile::LoadOf(plan));
    return absl::OkStatus();
  }
  absl::StatusOr<model::StepResult> Finish() override { return model::StepResult(); }

 private:
  const profile::StepTime& step_;
  absl::Duration elapsed_;
};

// Tenants take turns by tokens computed, up to a burst and a slack of a step each (TenantShares).
// Requests that run when others come add to that: about as many tokens as the cache holds. A tenant
// that starves falls behind without end.
int64_t FairnessSlack(const engine::EngineOptions& options) {
  return 8 * int64_t{options.max_batch_tokens} + int64_t{options.num_blocks} * options.block_size;
}

}  // namespace

WorkerProcess::WorkerProcess(const profile::WorkerProfile* worker_profile, uint64_t number,
                             const TestHooks* test_hooks)
    : profile(*worker_profile),
      hooks(*test_hooks),
      incarnation(absl::StrCat(number)),
      scheduler(EngineOptionsOf(profile), &metrics),
      quota(profile.engine.max_queued_tokens),
      fairness(FairnessSlack(profile.engine)),
      pace(kMinReportInterval, kMaxReportInterval) {
  ProfileExecutor executor(&profile.step);
  CONTINUO_CHECK(
      engine::Calibrate(EngineOptionsOf(profile), executor, executor, scheduler.cost()).ok());
}

absl::StatusOr<std::pair<engine::Request, WorkerProcess::Call>> WorkerProcess::Prepare(
    const v1::GenerateRequest& request, const gateway::CallContext& context) {
  const v1::GenerateResponse& received = request.continuation().received();
  engine::Request r;
  r.id = next_id++;
  r.tenant = context.tenant;
  r.prompt.assign(request.token_ids().ids().begin(), request.token_ids().ids().end());
  r.num_sequences = std::max<int>(1, static_cast<int>(request.sampling().num_sequences()));
  r.max_tokens = static_cast<int>(request.stopping().max_tokens());
  r.sampling.seed = request.sampling().seed();
  if (!request.stopping().ignore_eos()) r.stop_ids = {kEndToken};
  r.priority = request.priority();
  r.cache_salt = {std::hash<std::string>()(context.tenant), 0};

  Call call = {.seed = r.sampling.seed, .tenant = context.tenant};
  call.prompt_tokens = static_cast<uint32_t>(r.prompt.size());
  if (received.has_accepted()) {
    call.accepted = received.accepted();
    call.accepted.set_migrations(call.accepted.migrations() + 1);
    call.next_sequence = received.sequence() + 1;
    r.received.resize(r.num_sequences);
  } else {
    call.accepted.set_request_id(context.request_id);
    call.accepted.set_seed(r.sampling.seed);
    call.accepted.set_model(request.model());
    call.accepted.set_fingerprint(kModelName);
    call.accepted.set_tokenizer_fingerprint(kModelName);
  }
  for (const v1::Delta& delta : received.deltas()) {
    engine::ReceivedSequence& sequence = r.received.at(delta.index());
    for (const uint32_t id : delta.token_ids()) {
      const int place = static_cast<int>(sequence.tokens.size());
      const int32_t expected = AnswerToken(r.sampling.seed, static_cast<int>(delta.index()), place);
      if (static_cast<int32_t>(id) != expected) {
        return absl::InvalidArgumentError(absl::StrCat("the continuation has token ", id, " at ",
                                                       place, " of sequence ", delta.index(),
                                                       ", which cannot follow"));
      }
      sequence.tokens.push_back(static_cast<int32_t>(id));
    }
    sequence.finished = delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
    call.completion_tokens += static_cast<uint32_t>(sequence.tokens.size());
  }
  return std::pair(std::move(r), std::move(call));
}

model::StepResult WorkerProcess::Sample(const model::StepPlan& plan) const {
  model::StepResult result;
  result.token_ids.reserve(plan.sample_rows.size());
  for (size_t k = 0; k < plan.sample_rows.size(); ++k) {
    const model::SamplingParams& params = plan.sampling[k];
    const int place = plan.positions[plan.sample_rows[k]] + 1 - prompts.at(params.seed).num_tokens;
    result.token_ids.push_back(AnswerToken(params.seed, params.sequence_index, place));
  }
  result.scores.resize(result.token_ids.size());
  return result;
}

void WorkerProcess::OnEvent(engine::RequestId id, engine::RequestEvent event) {
  const auto at = calls.find(id);
  CONTINUO_CHECK(at != calls.end());
  Call& call = at->second;
  v1::GenerateResponse response;
  if (event.started && !std::exchange(call.accepted_sent, true)) {
    *response.mutable_accepted() = call.accepted;
  }
  for (const engine::SequenceDelta& delta : event.deltas) {
    v1::Delta& sent = *response.add_deltas();
    sent.set_index(static_cast<uint32_t>(delta.index));
    for (const int32_t token : delta.tokens) sent.add_token_ids(static_cast<uint32_t>(token));
    call.completion_tokens += static_cast<uint32_t>(delta.tokens.size());
    if (delta.finish != engine::FinishReason::kNone) {
      sent.set_finish_reason(delta.finish == engine::FinishReason::kStop
                                 ? v1::FINISH_REASON_STOP
                                 : v1::FINISH_REASON_LENGTH);
    }
  }
  const bool is_complete = event.ended.has_value() && event.ended->ok();
  if (is_complete) {
    v1::Summary& summary = *response.mutable_summary();
    summary.mutable_usage()->set_prompt_tokens(call.prompt_tokens);
    summary.mutable_usage()->set_cached_prompt_tokens(
        static_cast<uint32_t>(event.cached_prompt_tokens));
    summary.mutable_usage()->set_completion_tokens(call.completion_tokens);
    const engine::RequestTimings& timings = event.timings;
    *summary.mutable_timings()->mutable_queue_duration() = protocol::ToProto(timings.queue);
    *summary.mutable_timings()->mutable_prefill_duration() = protocol::ToProto(timings.prefill);
    *summary.mutable_timings()->mutable_total_duration() = protocol::ToProto(timings.total);
    summary.set_migrations(call.accepted.migrations());
  }
  if (response.has_accepted() || response.deltas_size() > 0 || is_complete) {
    response.set_sequence(call.next_sequence++);
    if (hooks.response) hooks.response(response);
    outbox.push_back({.stream = call.stream, .response = std::move(response)});
  }
  if (!event.ended.has_value()) return;
  outbox.push_back({.stream = call.stream, .end = *std::move(event.ended)});
  const auto prompt = prompts.find(call.seed);
  if (--prompt->second.num_calls == 0) prompts.erase(prompt);
  ids.erase(call.stream.get());
  calls.erase(at);
}

absl::Status WorkerProcess::CheckInvariants() {
  if (!std::exchange(is_dirty, false)) return absl::OkStatus();
  RETURN_IF_ERROR(fault);
  RETURN_IF_ERROR(scheduler.CheckInvariants());
  const engine::EngineOptions& limits = profile.engine;
  if (scheduler.num_running() > limits.max_running) {
    return absl::InternalError(absl::StrCat(scheduler.num_running(), " sequences run"));
  }
  if (ids.size() != calls.size()) return absl::InternalError("a call has no id");
  for (const auto& [id, call] : calls) {
    if (!prompts.contains(call.seed)) return absl::InternalError("a call has no prompt");
  }
  return absl::OkStatus();
}

absl::Status WorkerProcess::CheckAtRest() const {
  const auto left = [&](const char* what, int64_t count) {
    return count == 0 ? absl::OkStatus()
                      : absl::InternalError(
                            absl::StrCat(incarnation, " has ", count, " ", what, " left at rest"));
  };
  RETURN_IF_ERROR(left("calls", static_cast<int64_t>(calls.size())));
  RETURN_IF_ERROR(left("prompts", static_cast<int64_t>(prompts.size())));
  RETURN_IF_ERROR(left("requests", scheduler.idle() ? 0 : 1));
  RETURN_IF_ERROR(left("steps in flight", static_cast<int64_t>(in_flight.size())));
  RETURN_IF_ERROR(left("used KV blocks", scheduler.pool().num_used()));
  RETURN_IF_ERROR(left("references to KV blocks", scheduler.pool().num_references()));
  RETURN_IF_ERROR(left("queued tokens", quota.tokens()));
  RETURN_IF_ERROR(left("waiting tokens", scheduler.waiting_tokens()));
  RETURN_IF_ERROR(left("prompt tokens", scheduler.pending_prompt_tokens()));
  RETURN_IF_ERROR(left("unaccounted KV blocks", metrics.kv_blocks_unaccounted.load()));
  return scheduler.pool().CheckInvariants();
}

}  // namespace continuo::simulate
