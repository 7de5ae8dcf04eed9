// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/live_requests.h"

#include <algorithm>

namespace continuo::engine {
namespace {

absl::Time DueTime(const Request& r) { return std::min(r.deadline, r.time_limit); }

}  // namespace

LiveRequest* LiveRequests::Add(Request request, RequestSink sink, absl::Duration submitted) {
  const RequestId id = request.id;
  const auto [it, inserted] = live_.try_emplace(id);
  if (!inserted) {
    RequestEvent event;
    event.ended = absl::AlreadyExistsError("a request with this id is live");
    sink(std::move(event));
    return nullptr;
  }
  it->second = std::make_unique<LiveRequest>();
  LiveRequest& r = *it->second;
  r.request = std::move(request);
  r.sink = std::move(sink);
  r.order = next_order_++;
  r.submitted = submitted;
  r.num_scored = r.request.prompt_logprobs_received;
  r.sequences = std::vector<Sequence>(r.request.num_sequences);
  for (int i = 0; i < r.request.num_sequences; ++i) {
    Sequence& s = r.sequences[i];
    s.id = next_sequence_id_++;
    s.request = &r;
    s.index = i;
    if (!r.request.constraints.empty()) s.constraint = r.request.constraints[i].get();
    const bool has_finished = !r.request.received.empty() && r.request.received[i].finished;
    if (!r.request.received.empty()) s.answer = std::move(r.request.received[i].tokens);
    if (!has_finished) s.finish = WhyFinished(s);
    if (has_finished || s.finish != FinishReason::kNone) {
      s.state = SequenceState::kFinished;
    } else {
      ++r.num_unfinished;
    }
  }
  if (DueTime(r.request) != absl::InfiniteFuture()) due_.emplace(DueTime(r.request), id);
  return &r;
}

LiveRequest* LiveRequests::Find(RequestId id) {
  const auto it = live_.find(id);
  return it == live_.end() ? nullptr : it->second.get();
}

LiveRequest* LiveRequests::NextDue(absl::Time now) {
  return due_.empty() || due_.begin()->first > now ? nullptr : Find(due_.begin()->second);
}

RequestEvent& LiveRequests::EventOf(LiveRequest& r) {
  if (!r.has_event) {
    r.has_event = true;
    news_.push_back(&r);
  }
  return r.event;
}

void LiveRequests::Start(LiveRequest& r, const Moment& now) {
  if (r.started) return;
  r.started = true;
  r.first_step = now.elapsed;
  metrics_.queue_seconds.Observe(absl::ToDoubleSeconds(r.first_step - r.submitted));
  EventOf(r).started = true;
  // Sequences that a continuation brought may already be complete.
  for (Sequence& s : r.sequences) {
    if (s.state == SequenceState::kFinished && s.finish != FinishReason::kNone) {
      AddFinish(s, s.finish);
    }
  }
}

void LiveRequests::AddScore(LiveRequest& r, model::TokenScore score) {
  EventOf(r).prompt_scores.push_back(std::move(score));
}

void LiveRequests::AddState(LiveRequest& r, std::vector<float> state) {
  if (r.request.pooling != Pooling::kMean) {
    EventOf(r).state = std::move(state);
    return;
  }
  r.state_sum.resize(state.size());
  for (size_t i = 0; i < state.size(); ++i) r.state_sum[i] += static_cast<double>(state[i]);
  if (++r.num_states < r.prompt_tokens()) return;
  for (size_t i = 0; i < state.size(); ++i) {
    state[i] = static_cast<float>(r.state_sum[i] / r.num_states);
  }
  EventOf(r).state = std::move(state);
}

void LiveRequests::AddToken(Sequence& s, int32_t token, model::TokenScore score,
                            const Moment& now) {
  LiveRequest& r = *s.request;
  SequenceDelta& delta = EventOf(r).deltas.emplace_back();
  delta.index = s.index;
  delta.tokens.push_back(token);
  if (r.request.sampling.num_logprobs >= 0) delta.scores.push_back(std::move(score));
  if (!r.has_token) {
    r.has_token = true;
    r.first_token = now.elapsed;
    if (r.request.received.empty()) {
      metrics_.time_to_first_token_seconds.Observe(
          absl::ToDoubleSeconds(r.first_token - r.submitted));
    }
  }
  if (s.last_token != absl::ZeroDuration()) {
    const int64_t gap = absl::ToInt64Nanoseconds(now.elapsed - s.last_token);
    metrics_.inter_token_seconds.Observe(static_cast<double>(gap) * 1e-9);
  }
  s.last_token = now.elapsed;
}

void LiveRequests::AddFinish(Sequence& s, FinishReason finish) {
  RequestEvent& event = EventOf(*s.request);
  if (event.deltas.empty() || event.deltas.back().index != s.index) {
    event.deltas.emplace_back().index = s.index;
  }
  event.deltas.back().finish = finish;
}

void LiveRequests::AddProgress(LiveRequest& r, const PromptProgress& progress) {
  EventOf(r).progress = progress;
}

void LiveRequests::End(LiveRequest& r, absl::Status why, const Moment& now) {
  RequestEvent& event = EventOf(r);
  r.has_ended = true;
  event.ended = std::move(why);
  event.cached_prompt_tokens = r.cached_prompt_tokens;
  event.timings.total = now.elapsed - r.submitted;
  event.timings.num_preemptions = r.num_preemptions;
  event.timings.queue = (r.started ? r.first_step : now.elapsed) - r.submitted;
  if (r.started) event.timings.prefill = (r.has_token ? r.first_token : now.elapsed) - r.first_step;
  metrics_.request_seconds.Observe(absl::ToDoubleSeconds(event.timings.total));
  due_.erase({DueTime(r.request), r.request.id});
  const auto it = live_.find(r.request.id);
  ended_.push_back(std::move(it->second));
  live_.erase(it);
}

void LiveRequests::Deliver(uint64_t num_steps) {
  for (LiveRequest* r : news_) {
    const bool ends = r->event.ended.has_value();
    r->has_event = false;
    r->sink(std::move(r->event));
    r->event = {};
    if (ends) r->sink = nullptr;
  }
  news_.clear();
  std::erase_if(ended_, [&](const auto& r) { return r->last_step <= num_steps; });
}

}  // namespace continuo::engine
