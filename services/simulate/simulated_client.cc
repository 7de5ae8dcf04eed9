// SPDX-License-Identifier: Apache-2.0
#include "services/simulate/simulated_client.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/protocol/status_name.h"
#include "services/simulate/worker/answer.h"

namespace continuo::simulate {
namespace {

// The status with N for each number, so that errors that differ in numbers are one.
std::string WithoutNumbers(const absl::Status& status) {
  std::string text(protocol::StatusName(status.code()));
  absl::StrAppend(&text, ": ");
  for (const char c : status.message()) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit) text += c;
    if (is_digit && text.back() != 'N') text += 'N';
  }
  return text;
}

}  // namespace

SimulatedClient::SimulatedClient(PlannedRequest planned, v1::GenerateRequest request,
                                 const EventLoop* loop, absl::Duration network_delay,
                                 bool reconnects, Results* results, Callbacks callbacks)
    : planned_(std::move(planned)),
      request_(std::move(request)),
      loop_(*loop),
      network_delay_(network_delay),
      results_(*results),
      reconnects_(reconnects),
      callbacks_(std::move(callbacks)),
      start_(loop->Elapsed() - network_delay) {}

void SimulatedClient::Begin(std::shared_ptr<gateway::StreamRelay> relay, int gateway) {
  relay_ = std::move(relay);
  gateway_ = gateway;
  has_progress_ = false;
  const std::shared_ptr<gateway::StreamRelay> started = relay_;
  started->Start();
}

void SimulatedClient::Cancel() {
  if (relay_ == nullptr) return End(absl::CancelledError("the client has left"));
  const std::shared_ptr<gateway::StreamRelay> relay = relay_;
  relay->OnCancelled();
}

void SimulatedClient::OnGatewayLost() {
  gateway_is_lost_ = true;
  const std::shared_ptr<gateway::StreamRelay> relay = relay_;
  // What the dead process would have said does not count; see Finish.
  relay->End(absl::UnavailableError("the gateway is gone"));
}

void SimulatedClient::Check(const v1::GenerateResponse& response) {
  const uint64_t seed = request_.sampling().seed();
  for (const v1::Delta& delta : response.deltas()) {
    for (const uint32_t id : delta.token_ids()) {
      const auto expected = static_cast<uint32_t>(AnswerToken(seed, 0, num_tokens_));
      if (mistake_.ok() && (delta.index() != 0 || has_finish_ || id != expected)) {
        mistake_ =
            absl::DataLossError(absl::StrCat("request ", planned_.index, " got token ", id, " at ",
                                             num_tokens_, ", where ", expected, " follows"));
      }
      ++num_tokens_;
    }
    has_finish_ = has_finish_ || delta.finish_reason() != v1::FINISH_REASON_UNSPECIFIED;
  }
}

void SimulatedClient::Write(const v1::GenerateResponse& response) {
  const int before = num_tokens_;
  Check(response);
  has_progress_ = has_progress_ || num_tokens_ > before || response.has_summary();
  num_reconnects_ = 0;
  if (reconnects_) {
    const absl::Status follows = received_.Add(response);
    if (mistake_.ok()) mistake_ = follows;
  }
  if (const int tokens = num_tokens_ - before; tokens > 0) {
    const absl::Duration now = loop_.Elapsed() + network_delay_;
    if (last_token_.has_value()) {
      results_.inter_token.Record((now - *last_token_) / tokens, static_cast<uint64_t>(tokens));
    } else {
      results_.time_to_first_token.Record(now - start_);
    }
    last_token_ = now;
    results_.output_tokens += static_cast<uint64_t>(tokens);
  }
  if (response.has_summary()) {
    results_.cached_prompt_tokens += response.summary().usage().cached_prompt_tokens();
  }
  relay_->OnWritten(true);
}

void SimulatedClient::Finish(const absl::Status& status, const gateway::RelayReport& report) {
  results_.migrations += static_cast<uint64_t>(report.migrations);
  Conclude(std::exchange(gateway_is_lost_, false) ? absl::UnavailableError("the gateway is gone")
                                                  : status);
}

void SimulatedClient::Conclude(absl::Status status) {
  relay_.reset();
  constexpr int kMostReconnects = 8;  // about half a minute
  if (!reconnects_ || !absl::IsUnavailable(status) || received_.nothing() ||
      num_reconnects_ >= kMostReconnects) {
    return End(status);
  }
  if (received_.has_summary()) return End(absl::OkStatus());
  *request_.mutable_continuation()->mutable_received() = received_.ToProto();
  const absl::Duration delay =
      std::min(absl::Seconds(5), absl::Milliseconds(100) * (1 << num_reconnects_++));
  ++results_.reconnects;
  callbacks_.reconnect(this, delay);
}

void SimulatedClient::End(const absl::Status& status) {
  const absl::Duration took = loop_.Elapsed() + network_delay_ - start_;
  if (status.ok()) {
    ++results_.ok;
    results_.prompt_tokens += planned_.prompt_tokens;
    results_.whole.Record(took);
    const int expected = static_cast<int>(planned_.output_tokens);
    if (mistake_.ok() && num_tokens_ != expected) {
      mistake_ = absl::DataLossError(
          absl::StrCat("request ", planned_.index, " got ", num_tokens_, " tokens of ", expected));
    }
  } else {
    ++(absl::IsResourceExhausted(status) ? results_.rejected : results_.failed);
    ++results_.errors[WithoutNumbers(status)];
  }
  // An order of ends or a time that differs by a nanosecond gives another digest.
  for (const uint64_t value :
       {planned_.index, static_cast<uint64_t>(num_tokens_),
        static_cast<uint64_t>(absl::ToInt64Nanoseconds(took)), uint64_t(status.code())}) {
    results_.digest = SplitMix64::At(results_.digest ^ value, 0);
  }
  callbacks_.on_end(this);
}

}  // namespace continuo::simulate
