// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/generation_queue.h"

#include <utility>

#include "services/gateway/relay/message_bytes.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxBytes = 64 << 10;

}  // namespace

// The client's side of one relay.
class GenerationQueue::Client : public RelayClient {
 public:
  Client(GenerationQueue* queue, int prompt) : queue_(queue), prompt_(prompt) {}

  // The relay is to be started next.
  void Attach(std::shared_ptr<StreamRelay> relay) {
    relay_ = std::move(relay);
    keep_queue_ = queue_->shared_from_this();
  }
  // Null before Attach. Kept until the queue ends: others may just be calling it.
  StreamRelay* relay() const { return relay_.get(); }

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
  std::shared_ptr<StreamRelay> relay_;
  std::shared_ptr<GenerationQueue> keep_queue_;  // from Attach to Finish
};

GenerationQueue::GenerationQueue(std::function<void()> notify, std::shared_ptr<void> keep)
    : notify_(std::move(notify)), keep_(std::move(keep)) {}

GenerationQueue::~GenerationQueue() = default;

absl::Status GenerationQueue::Open(GenerateService* front, ClientCall call,
                                   std::vector<v1::GenerateRequest> requests, int num_copies) {
  // Admitted all or none, so that no prompt runs for nothing.
  std::vector<std::shared_ptr<StreamRelay>> relays;
  absl::Status status;
  for (v1::GenerateRequest& request : requests) {
    clients_.push_back(std::make_unique<Client>(this, static_cast<int>(clients_.size())));
    call.num_bytes = num_copies * MemoryOf(request);
    auto relay = front->Open(call, std::move(request), clients_.back().get());
    if (!relay.ok()) {
      status = relay.status();
      clients_.pop_back();
      break;
    }
    relays.push_back(*std::move(relay));
  }
  // All are attached before the first one may end, which none does before its start.
  for (size_t i = 0; i < relays.size(); ++i) clients_[i]->Attach(relays[i]);
  for (const auto& relay : relays) {
    if (!status.ok()) relay->End(absl::CancelledError("another prompt of the call was refused"));
    relay->Start();
  }
  return status;
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
    if (!room && !is_end) owed_.push_back(client);
    if (items_.size() > 1) return room;
  }
  notify_();
  return room;
}

std::vector<GenerationQueue::Item> GenerationQueue::Take() {
  std::vector<Item> items;
  std::vector<Client*> owed;
  {
    absl::MutexLock lock(&mutex_);
    items.swap(items_);
    owed.swap(owed_);
    num_bytes_ = 0;
  }
  for (Client* client : owed) client->relay()->OnWritten(true);
  return items;
}

void GenerationQueue::Cancel(const absl::Status& error) {
  std::vector<Client*> owed;
  {
    absl::MutexLock lock(&mutex_);
    cancelled_ = true;
    items_.clear();
    owed.swap(owed_);
  }
  const std::shared_ptr<GenerationQueue> self = shared_from_this();
  for (const auto& client : clients_) {
    if (error.ok()) {
      client->relay()->OnCancelled();
    } else {
      client->relay()->End(error);
    }
  }
  for (Client* client : owed) client->relay()->OnWritten(false);
}

void GenerationQueue::Expire() {
  const std::shared_ptr<GenerationQueue> self = shared_from_this();
  for (const auto& client : clients_) client->relay()->OnCancelled();
}

}  // namespace continuo::gateway::openai
