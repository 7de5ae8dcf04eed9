// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/vllm/vllm_kv_events.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>

#include "absl/time/time.h"
#include "services/base/status_macros.h"

namespace continuo::server {
namespace {

namespace kv = ::smg::grpc::common;

// Batches that are taken from the log at a time.
constexpr size_t kReadBytes = 1 << 20;

double Seconds(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

int64_t HashOf(engine::BlockName name) { return static_cast<int64_t>(name); }

kv::KvBlocksStored* AddStored(uint64_t id, engine::BlockName parent, kv::KvEventBatch& message) {
  kv::KvCacheEvent& event = *message.add_events();
  event.set_event_id(id);
  if (parent != engine::kNoName) event.mutable_stored()->set_parent_block_hash(HashOf(parent));
  return event.mutable_stored();
}

void AddBlock(engine::BlockName name, std::span<const int32_t> tokens, kv::KvBlocksStored& stored) {
  kv::KvBlock& block = *stored.add_blocks();
  block.set_block_hash(HashOf(name));
  block.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  block.set_block_size(static_cast<int32_t>(tokens.size()));
}

}  // namespace

absl::StatusOr<bool> VllmKvEvents::Next(kv::KvEventBatch& message) {
  if (part_ == num_parts_ && batches_.empty()) {
    if (auto snapshot = watch_->TakeSnapshot(); snapshot.has_value()) {
      Begin(*std::move(snapshot));
    } else {
      ASSIGN_OR_RETURN(const auto read, watch_->Read(kReadBytes));
      batches_.assign(read.begin(), read.end());
    }
  }
  if (part_ < num_parts_) {
    FillPart(message);
    return true;
  }
  if (batches_.empty()) return false;
  FillBatch(*batches_.front(), message);
  batches_.pop_front();
  return true;
}

void VllmKvEvents::Begin(engine::KvSnapshot snapshot) {
  snapshot_ = std::move(snapshot);
  order_.resize(snapshot_.names.size());
  std::iota(order_.begin(), order_.end(), size_t{0});
  // A block was published after its parent.
  std::ranges::sort(order_, {}, [this](size_t i) { return snapshot_.names[i]; });
  const size_t bytes = static_cast<size_t>(block_size_) * sizeof(int32_t) + 2 * sizeof(int64_t);
  blocks_per_part_ = std::max<size_t>(1, kMaxPartBytes / bytes);
  part_ = 0;
  num_parts_ = std::max<size_t>(1, (order_.size() + blocks_per_part_ - 1) / blocks_per_part_);
  if (num_parts_ > 1) watch_->TellInParts();
}

void VllmKvEvents::FillPart(kv::KvEventBatch& message) {
  message.set_sequence_number(snapshot_.number - (num_parts_ - 1) + part_);
  message.set_timestamp(Seconds(snapshot_.time));
  message.set_dp_rank(0);
  message.mutable_snapshot()->set_index(static_cast<uint32_t>(part_));
  message.mutable_snapshot()->set_count(static_cast<uint32_t>(num_parts_));
  message.mutable_snapshot()->set_blocks(order_.size());
  if (part_ == 0) message.add_events()->mutable_cleared();
  const size_t begin = part_ * blocks_per_part_;
  const size_t end = std::min(order_.size(), begin + blocks_per_part_);
  const auto size = static_cast<size_t>(block_size_);
  kv::KvBlocksStored* stored = nullptr;
  engine::BlockName last = engine::kNoName;
  for (size_t at = begin; at < end; ++at) {
    const size_t i = order_[at];
    if (stored == nullptr || snapshot_.parents[i] != last) {
      stored = AddStored(/*id=*/0, snapshot_.parents[i], message);
    }
    last = snapshot_.names[i];
    AddBlock(last, std::span(snapshot_.tokens).subspan(i * size, size), *stored);
  }
  if (++part_ < num_parts_) return;
  snapshot_ = {};
  std::vector<size_t>().swap(order_);
}

void VllmKvEvents::FillBatch(const engine::KvEventBatch& batch, kv::KvEventBatch& message) const {
  message.set_sequence_number(batch.number);
  message.set_timestamp(Seconds(batch.time));
  message.set_dp_rank(0);
  uint64_t id = batch.first_event;
  for (const engine::KvEvent& event : batch.events) {
    const uint64_t event_id = id++;
    if (event.salt != salt_) continue;
    if (event.kind == engine::KvEvent::Kind::kRemoved) {
      kv::KvCacheEvent& removed = *message.add_events();
      removed.set_event_id(event_id);
      for (const engine::BlockName name : event.names) {
        removed.mutable_removed()->add_block_hashes(HashOf(name));
      }
      continue;
    }
    kv::KvBlocksStored& stored = *AddStored(event_id, event.parent, message);
    const auto size = static_cast<size_t>(block_size_);
    for (size_t i = 0; i < event.names.size(); ++i) {
      AddBlock(event.names[i], std::span(event.tokens).subspan(i * size, size), stored);
    }
  }
}

}  // namespace continuo::server
