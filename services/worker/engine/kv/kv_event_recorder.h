// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "services/worker/engine/kv/block_pool.h"
#include "services/worker/engine/types/kv_events.h"

namespace continuo::engine {

// Writes down what becomes of a pool's published blocks, and copies those that there are. Nothing
// is written down, and no memory is held, unless it records. Used by the pool's thread alone.
class KvEventRecorder : public BlockListener {
 public:
  // An event that has reached this size is followed by another one.
  static constexpr size_t kMaxEventBytes = 128 << 10;

  // `pool` outlives the recorder.
  explicit KvEventRecorder(BlockPool* pool) : pool_(*pool) {}
  ~KvEventRecorder() override { Stop(); }
  KvEventRecorder(const KvEventRecorder&) = delete;
  KvEventRecorder& operator=(const KvEventRecorder&) = delete;

  void Record() { pool_.SetListener(this); }
  // What was not taken is forgotten.
  void Stop();
  // Returns what has happened since the last call, in its order.
  std::vector<KvEvent> Take();

  // Copies the blocks of one salt that can be found now. The caller sets number and time.
  KvSnapshot Copy(const CacheSalt& salt) const;

  void OnPublished(const PublishedBlock& block) override;
  void OnForgotten(BlockName name, const CacheSalt& salt) override;

 private:
  // True if the last event may have one more block of this kind and salt.
  bool GoesOn(KvEvent::Kind kind, const CacheSalt& salt) const;

  BlockPool& pool_;
  std::vector<KvEvent> events_;
};

}  // namespace continuo::engine
