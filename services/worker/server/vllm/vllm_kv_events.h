// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/engine/kv_event_log.h"
#include "services/worker/engine/types/kv_events.h"
#include "vllm/common.pb.h"

namespace continuo::server {

// The messages of one stream of SubscribeKvEvents: the snapshot in parts, then each batch. Events
// of other salts are left out, their batches are not, since subscribers count the numbers. Used by
// one thread at a time.
class VllmKvEvents {
 public:
  // A part of a snapshot has at most about so many bytes.
  static constexpr size_t kMaxPartBytes = 256 << 10;

  // The events have blocks of `block_size` tokens.
  VllmKvEvents(std::unique_ptr<engine::KvEventLog::Watch> watch, const engine::CacheSalt& salt,
               int block_size)
      : watch_(std::move(watch)), salt_(salt), block_size_(block_size) {}

  // Fills in the next message, or returns false where there is none yet. DataLoss: the subscriber
  // is too slow.
  absl::StatusOr<bool> Next(smg::grpc::common::KvEventBatch& message);

 private:
  void Begin(engine::KvSnapshot snapshot);
  void FillPart(smg::grpc::common::KvEventBatch& message);
  void FillBatch(const engine::KvEventBatch& batch, smg::grpc::common::KvEventBatch& message) const;

  const std::unique_ptr<engine::KvEventLog::Watch> watch_;
  const engine::CacheSalt salt_;
  const int block_size_;

  // While parts of the snapshot are missing:
  engine::KvSnapshot snapshot_;
  std::vector<size_t> order_;  // of its blocks: each behind its parent
  size_t blocks_per_part_ = 0, part_ = 0, num_parts_ = 0;

  std::deque<std::shared_ptr<const engine::KvEventBatch>> batches_;  // read and not told
};

}  // namespace continuo::server
