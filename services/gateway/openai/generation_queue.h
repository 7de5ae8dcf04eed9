// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "continuo/v1/inference.pb.h"
#include "services/gateway/relay/generate_service.h"
#include "services/gateway/relay/stream_relay.h"

namespace continuo::gateway::openai {

// The generations of one HTTP request, one for each prompt, and their responses on the way to its
// connection. Bounded: beyond 64 KiB a relay gets OnWritten only when its response has been taken.
// Thread-safe; lives until every relay has finished.
class GenerationQueue : public std::enable_shared_from_this<GenerationQueue> {
 public:
  struct Item {
    int prompt = 0;
    v1::GenerateResponse response;
    std::optional<absl::Status> end;  // set in the last item of a prompt
  };

  // `notify` is called from any thread when there is something to take. The queue holds `keep`
  // until it is destroyed.
  GenerationQueue(std::function<void()> notify, std::shared_ptr<void> keep);
  ~GenerationQueue();

  // Opens and starts a generation for each request; a request counts as `num_copies` of its size.
  // If one is rejected the others are cancelled. `tokens_had` is ClientCall::tokens_had of each
  // request; where it is empty, 0.
  absl::Status Open(GenerateService* service, ClientCall call,
                    std::vector<v1::GenerateRequest> requests, int num_copies = 1,
                    const std::vector<int64_t>& tokens_had = {});

  // True once a worker has got each request.
  bool is_sent() const;
  // Returns everything since the last call.
  std::vector<Item> Take();
  // Ends every generation, after which nothing is left to take. The client is gone, or gets
  // `error`.
  void Cancel(const absl::Status& error = absl::OkStatus());
  // Ends every generation because the deadline has passed; Take returns their ends.
  void Expire();

 private:
  class Client;

  void OnSent();
  // Adds an item. True if there is room for the next one.
  bool Push(Client* client, Item item);

  const std::function<void()> notify_;
  const std::shared_ptr<void> keep_;
  std::vector<std::unique_ptr<Client>> clients_;  // made by Open

  mutable absl::Mutex mutex_;
  size_t num_sent_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Client*> blocked_ ABSL_GUARDED_BY(mutex_);  // get OnWritten after Take
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::gateway::openai
