// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "services/gateway/openai/live/live_response.h"

namespace continuo::gateway::openai {

// The responses that this gateway generates, by tenant and id. Thread-safe; outlives its entries.
class LiveResponses {
 public:
  // Lists a response until it is destroyed, and ends it then if nobody has.
  class Entry {
   public:
    Entry(LiveResponses* all, std::string tenant, std::string id,
          std::shared_ptr<LiveResponse> response);
    ~Entry();
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    LiveResponse* operator->() const { return response_.get(); }
    // Takes it off the list, so that nobody else asks, and ends it.
    void End(const absl::Status& status, std::string error);

   private:
    LiveResponses* const all_;
    const std::pair<std::string, std::string> name_;
    const std::shared_ptr<LiveResponse> response_;
  };

  // One to read; null if this gateway generates no response of this tenant with this id.
  std::unique_ptr<LiveResponse::Reader> Find(const std::string& tenant, const std::string& id);

 private:
  using Name = std::pair<std::string, std::string>;

  absl::Mutex mutex_;
  // A retry with an idempotency key replaces the one before it.
  absl::flat_hash_map<Name, std::shared_ptr<LiveResponse>> responses_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace continuo::gateway::openai
