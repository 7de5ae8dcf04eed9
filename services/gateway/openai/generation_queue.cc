// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/generation_queue.h"

#include <utility>

#include "services/gateway/relay/message_memory.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

}  // namespace

// The client's side of one relay.
class GenerationQueue::Client : public RelayClient {
 public:
  Client(GenerationQueue* queue, int prompt) : queue_(queue), prompt_(prompt) {}

  // Called before the relay is started.
  void Attach(std::shared_ptr<StreamRelay> relay) {
    relay_ = std::move(relay);
    keep_queue_ = queue_->shared_from_this();
  }
  // Null before Attach. Kept until the queue is destroyed, since other threads may be calling it.
  StreamRelay* relay() const { return relay_.get(); }

  void OnSent() override {
    if (!std::exchange(sent_, true)) queue_->OnSent();
  }
  void Write(const v1::GenerateResponse& response) override {
    if (queue_->Push(this, {.prompt = prompt_, .response = response})) relay_->OnWritten(true);
  }
  void Finish(const absl::Status& status, const RelayReport& /*report*/) override {
    const std::shared_ptr<GenerationQueue> queue = std::move(keep_queue_);
    queue->Push(this, {.prompt = prompt_, .end = status});
  }

 private:
  GenerationQueue* const queue_;
  const int prompt_;
  bool sent_ = false;  // only used from the relay's callbacks, which come one at a time
  std::shared_ptr<StreamRelay> relay_;
  std::shared_ptr<GenerationQueue> keep_queue_;  // from Attach to Finish
};

GenerationQueue::GenerationQueue(std::function<void()> notify, std::shared_ptr<void> keep)
    : notify_(std::move(notify)), keep_(std::move(keep)) {}

GenerationQueue::~GenerationQueue() = default;

absl::Status GenerationQueue::Open(GenerateService* service, ClientCall call,
                                   std::vector<v1::GenerateRequest> requests, int num_copies,
                                   const std::vector<int64_t>& tokens_had) {
  // All prompts are admitted or none, so that no prompt runs in vain.
  std::vector<std::shared_ptr<StreamRelay>> relays;
  absl::Status status;
  for (v1::GenerateRequest& request : requests) {
    clients_.push_back(std::make_unique<Client>(this, static_cast<int>(clients_.size())));
    call.num_bytes = num_copies * MemoryOf(request);
    call.tokens_had = tokens_had.empty() ? 0 : tokens_had[relays.size()];
    auto relay = service->Open(call, std::move(request), clients_.back().get());
    if (!relay.ok()) {
      status = relay.status();
      clients_.pop_back();
      break;
    }
    relays.push_back(*std::move(relay));
  }
  // All are attached before the first one is started, since only then it may end.
  for (size_t i = 0; i < relays.size(); ++i) clients_[i]->Attach(relays[i]);
  for (const auto& relay : relays) {
    if (!status.ok()) relay->End(absl::CancelledError("another prompt of the call was rejected"));
    relay->Start();
  }
  return status;
}

void GenerationQueue::OnSent() {
  {
    absl::MutexLock lock(&mutex_);
    if (++num_sent_ < clients_.size()) return;
  }
  notify_();
}

bool GenerationQueue::is_sent() const {
  absl::MutexLock lock(&mutex_);
  return num_sent_ >= clients_.size();
}

bool GenerationQueue::Push(Client* client, Item item) {
  bool room = true;
  {
    absl::MutexLock lock(&mutex_);
    if (cancelled_) return true;
    const bool is_end = item.end.has_value();
    num_bytes_ += item.response.ByteSizeLong();
    items_.push_back(std::move(item));
    room = num_bytes_ < kMaxBytes;
    if (!room && !is_end) blocked_.push_back(client);
    if (items_.size() > 1) return room;
  }
  notify_();
  return room;
}

std::vector<GenerationQueue::Item> GenerationQueue::Take() {
  std::vector<Item> items;
  std::vector<Client*> blocked;
  {
    absl::MutexLock lock(&mutex_);
    items.swap(items_);
    blocked.swap(blocked_);
    num_bytes_ = 0;
  }
  for (Client* client : blocked) client->relay()->OnWritten(true);
  return items;
}

void GenerationQueue::Cancel(const absl::Status& error) {
  std::vector<Client*> blocked;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    items_.clear();
    blocked.swap(blocked_);
  }
  const std::shared_ptr<GenerationQueue> self = shared_from_this();
  for (const auto& client : clients_) {
    if (error.ok()) {
      client->relay()->OnCancelled();
    } else {
      client->relay()->End(error);
    }
  }
  for (Client* client : blocked) client->relay()->OnWritten(false);
}

void GenerationQueue::Expire() {
  const std::shared_ptr<GenerationQueue> self = shared_from_this();
  for (const auto& client : clients_) client->relay()->OnCancelled();
}

}  // namespace continuo::gateway::openai
