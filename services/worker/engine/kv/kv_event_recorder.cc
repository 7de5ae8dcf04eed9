// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/kv/kv_event_recorder.h"

#include <utility>

namespace continuo::engine {

void KvEventRecorder::Stop() {
  pool_.SetListener(nullptr);
  std::vector<KvEvent>().swap(events_);
}

std::vector<KvEvent> KvEventRecorder::Take() { return std::exchange(events_, {}); }

KvSnapshot KvEventRecorder::Copy(const CacheSalt& salt) const {
  KvSnapshot snapshot;
  snapshot.block_size = pool_.block_size();
  size_t num_blocks = 0;
  pool_.VisitPublished([&](const PublishedBlock& block) { num_blocks += block.salt == salt; });
  snapshot.names.reserve(num_blocks);
  snapshot.parents.reserve(num_blocks);
  snapshot.tokens.reserve(num_blocks * static_cast<size_t>(pool_.block_size()));
  pool_.VisitPublished([&](const PublishedBlock& block) {
    if (block.salt != salt) return;
    snapshot.names.push_back(block.name);
    snapshot.parents.push_back(block.parent);
    snapshot.tokens.insert(snapshot.tokens.end(), block.tokens.begin(), block.tokens.end());
  });
  return snapshot;
}

bool KvEventRecorder::GoesOn(KvEvent::Kind kind, const CacheSalt& salt) const {
  return !events_.empty() && events_.back().kind == kind && events_.back().salt == salt &&
         events_.back().bytes() < kMaxEventBytes;
}

void KvEventRecorder::OnPublished(const PublishedBlock& block) {
  if (!GoesOn(KvEvent::Kind::kStored, block.salt) || events_.back().names.back() != block.parent) {
    events_.push_back({.kind = KvEvent::Kind::kStored, .salt = block.salt, .parent = block.parent});
  }
  KvEvent& event = events_.back();
  event.names.push_back(block.name);
  event.tokens.insert(event.tokens.end(), block.tokens.begin(), block.tokens.end());
}

void KvEventRecorder::OnForgotten(BlockName name, const CacheSalt& salt) {
  if (!GoesOn(KvEvent::Kind::kRemoved, salt)) {
    events_.push_back({.kind = KvEvent::Kind::kRemoved, .salt = salt});
  }
  events_.back().names.push_back(name);
}

}  // namespace continuo::engine
