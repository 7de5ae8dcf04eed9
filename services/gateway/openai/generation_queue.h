// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
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
// connection. Bounded: beyond 64 KiB a relay is told that its response is written only when that
// was taken. Thread-safe; lives until every relay has finished.
class GenerationQueue : public std::enable_shared_from_this<GenerationQueue> {
 public:
  struct Item {
    int prompt = 0;
    v1::GenerateResponse response;
    std::optional<absl::Status> end;  // of this prompt's generation: the last item of it
  };

  // `notify` is called from any thread when there is something to take. `keep` is let go of when
  // the queue ends.
  GenerationQueue(std::function<void()> notify, std::shared_ptr<void> keep);
  ~GenerationQueue();

  // Opens and starts a generation for each request, of which `num_copies` are kept and counted.
  // Where one is refused the others are cancelled.
  absl::Status Open(GenerateService* front, ClientCall call,
                    std::vector<v1::GenerateRequest> requests, int num_copies = 1);

  // Everything since the last call, of which nothing waits any more from now on.
  std::vector<Item> Take();
  // Every generation ends, and nothing is to be taken any more: the client is gone, or gets this
  // error of ours.
  void Cancel(const absl::Status& error = absl::OkStatus());
  // The deadline has passed: every generation ends, and says so.
  void Expire();

 private:
  class Client;

  // Takes it in; true where there is room for the next one.
  bool Push(Client* client, Item item);

  const std::function<void()> notify_;
  const std::shared_ptr<void> keep_;
  std::vector<std::unique_ptr<Client>> clients_;  // made by Open

  absl::Mutex mutex_;
  std::vector<Item> items_ ABSL_GUARDED_BY(mutex_);
  size_t num_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<Client*> owed_ ABSL_GUARDED_BY(mutex_);  // OnWritten
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace continuo::gateway::openai
