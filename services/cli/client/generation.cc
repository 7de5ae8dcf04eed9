// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/generation.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/common/grpc/grpc_status.h"
#include "services/protocol/error.h"

namespace continuo::cli {

Generation::Generation(v1::InferenceService::StubInterface* stub, v1::GenerateRequest request,
                       GenerationOptions options)
    : stub_(stub), request_(std::move(request)), options_(std::move(options)) {
  // Where the request already has a continuation, the next response follows that one.
  if (request_.continuation().has_received()) {
    next_sequence_ = request_.continuation().received().sequence() + 1;
    received_.Begin(request_.continuation().received());
  }
}

void Generation::Cancel() {
  absl::MutexLock lock(&mutex_);
  cancelled_ = true;
  if (context_ != nullptr) context_->TryCancel();
}

void Generation::Pause(absl::Duration duration) {
  absl::MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&cancelled_), duration);
}

absl::Status Generation::RunOnce(const std::function<void(const v1::GenerateResponse&)>& take) {
  grpc::ClientContext context;
  if (options_.deadline != absl::InfiniteFuture()) {
    context.set_deadline(absl::ToChronoTime(options_.deadline));
  }
  if (options_.prepare) options_.prepare(context);
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return absl::CancelledError("cancelled");
    context_ = &context;
  }
  const auto reader = stub_->Generate(&context, request_);
  absl::Status bad;
  v1::GenerateResponse response;
  while (bad.ok() && reader->Read(&response)) {
    if (response.sequence() != next_sequence_) {
      bad = absl::DataLossError(absl::StrCat("response ", response.sequence(), " came where ",
                                             next_sequence_, " was due"));
      context.TryCancel();
      break;
    }
    ++next_sequence_;
    complete_ = complete_ || response.has_summary();
    received_.Merge(response);
    take(response);
  }
  const grpc::Status status = reader->Finish();
  absl::MutexLock lock(&mutex_);
  context_ = nullptr;
  if (!bad.ok()) return bad;
  if (complete_) return absl::OkStatus();
  if (cancelled_) return absl::CancelledError("cancelled");
  return status.ok() ? absl::UnavailableError("the answer ended before its summary")
                     : common::FromGrpcStatus(status);
}

absl::Status Generation::Run(const std::function<void(const v1::GenerateResponse&)>& take) {
  absl::Duration backoff = options_.first_backoff;
  absl::Time give_up = absl::InfiniteFuture();
  while (true) {
    const uint64_t before = next_sequence_;
    const absl::Status status = RunOnce(take);
    if (next_sequence_ != before) {
      backoff = options_.first_backoff;
      give_up = absl::InfiniteFuture();
    }
    // Before the first response, the request is sent again only where the server asks for it.
    const bool again =
        (absl::IsUnavailable(status) &&
         (next_sequence_ > 0 || protocol::ReasonOf(status) == protocol::kReasonContinue ||
          protocol::ReasonOf(status) == protocol::kReasonDraining)) ||
        (absl::IsResourceExhausted(status) && protocol::RetryDelayOf(status).has_value());
    const absl::Time now = absl::Now();
    if (give_up == absl::InfiniteFuture()) give_up = now + options_.reconnect_for;
    const absl::Duration pause =
        std::max(backoff, protocol::RetryDelayOf(status).value_or(backoff));
    if (!again || now + pause > std::min(give_up, options_.deadline)) return status;
    // Even an empty continuation matters: the request replaces one that the server still holds.
    v1::Continuation& continuation = *request_.mutable_continuation();
    if (!received_.nothing()) *continuation.mutable_received() = received_.ToProto();
    if (options_.on_retry) options_.on_retry(status);
    Pause(pause);
    backoff = std::min(backoff * 2, absl::Seconds(5));
  }
}

}  // namespace continuo::cli
