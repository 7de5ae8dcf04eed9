// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/embed/embed_session.h"

#include <algorithm>

namespace continuo::server {

std::shared_ptr<EmbedSession> EmbedSession::Create(EmbedWork work, Hooks hooks, WorkPool* pool,
                                                   std::shared_ptr<const ServedModel> model) {
  return std::shared_ptr<EmbedSession>(
      new EmbedSession(std::move(work), std::move(hooks), pool, std::move(model)));
}

EmbedSession::EmbedSession(EmbedWork work, Hooks hooks, WorkPool* pool,
                           std::shared_ptr<const ServedModel> model)
    : hooks_(std::move(hooks)),
      pool_(pool),
      model_(std::move(model)),
      dimensions_(work.dimensions),
      normalises_(work.normalises),
      requests_(std::move(work.requests)) {
  report_.inputs = static_cast<int>(requests_.size());
  for (const engine::Request& request : requests_) {
    ids_.push_back(request.id);
    report_.prompt_tokens += static_cast<int64_t>(request.prompt.size());
    response_.add_embeddings();
  }
}

std::vector<std::pair<engine::Request, engine::RequestSink>> EmbedSession::TakeRequests() {
  std::vector<std::pair<engine::Request, engine::RequestSink>> all;
  all.reserve(requests_.size());
  for (size_t i = 0; i < requests_.size(); ++i) {
    all.emplace_back(std::move(requests_[i]),
                     [self = shared_from_this(), i](engine::RequestEvent event) {
                       self->OnEvent(i, std::move(event));
                     });
  }
  requests_.clear();
  return all;
}

void EmbedSession::Cancel(const absl::Status& why) {
  for (const engine::RequestId id : ids_) hooks_.cancel(id, why);
}

void EmbedSession::OnEvent(size_t input, engine::RequestEvent event) {
  if (event.state.empty() && !event.ended.has_value()) return;
  {
    absl::MutexLock lock(&mutex_);
    events_.emplace_back(input, std::move(event));
    if (busy_) return;
    busy_ = true;
  }
  pool_->Post([self = shared_from_this()] { self->Process(); });
}

void EmbedSession::Process() {
  while (true) {
    std::vector<std::pair<size_t, engine::RequestEvent>> events;
    {
      absl::MutexLock lock(&mutex_);
      events.swap(events_);
      if (events.empty()) {
        busy_ = false;
        return;
      }
    }
    for (auto& [input, event] : events) Take(input, std::move(event));
    if (num_ended_ < ids_.size()) continue;
    // No event follows, so nobody else works on this.
    if (!status_.ok()) {
      hooks_.finish(status_);
      return;
    }
    v1::Usage& usage = *response_.mutable_usage();
    usage.set_prompt_tokens(static_cast<uint32_t>(report_.prompt_tokens));
    usage.set_cached_prompt_tokens(static_cast<uint32_t>(report_.cached_prompt_tokens));
    hooks_.finish(std::move(response_));
    return;
  }
}

void EmbedSession::Take(size_t input, engine::RequestEvent event) {
  v1::Embedding& embedding = *response_.mutable_embeddings(static_cast<int>(input));
  if (!event.state.empty()) {
    if (model_->score != nullptr) {
      const double logit = model_->score->Logit(event.state);
      embedding.add_values(embedding::ScoreHead::ScoreOf(logit));
      embedding.set_logit(logit);
    } else {
      const std::vector<float> vector =
          model_->embedding->Apply(event.state, dimensions_, normalises_);
      embedding.mutable_values()->Assign(vector.begin(), vector.end());
    }
  }
  if (!event.ended.has_value()) return;
  ++num_ended_;
  report_.cached_prompt_tokens += event.cached_prompt_tokens;
  report_.preemptions += event.timings.num_preemptions;
  report_.queue = std::max(report_.queue, event.timings.queue);
  absl::Status ended = *std::move(event.ended);
  if (ended.ok() && embedding.values().empty()) {
    ended = absl::InternalError("the engine ended an input without a state");
  }
  if (ended.ok() || !status_.ok()) return;
  status_ = std::move(ended);
  Cancel(absl::CancelledError("another input of the call failed"));
}

}  // namespace continuo::server
