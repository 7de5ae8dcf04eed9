// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "continuo/v1/worker.pb.h"
#include "vllm/common.pb.h"

namespace continuo::server {

// The load in one stream of SubscribeKvEvents: a record in each batch, and batches of a record
// alone where the load has changed or nothing was sent for a while, so that subscribers need not
// ask for it. Not thread-safe.
class VllmLoadRecords {
 public:
  // The load is looked at so often, a second passes without a record at most, or five where the
  // load has not changed for two of them.
  static constexpr absl::Duration kTick = absl::Milliseconds(100);
  static constexpr absl::Duration kHeartbeat = absl::Seconds(1);
  static constexpr absl::Duration kIdleHeartbeat = absl::Seconds(5);

  // `number` is that of the last batch that the subscriber has. Without one, no record comes before
  // the first batch. `now`, here and below, is of a clock that never goes back.
  VllmLoadRecords(std::optional<uint64_t> number, absl::Duration now)
      : number_(number), last_look_(now), last_record_(now) {}

  // Adds the load to a batch that is about to be sent.
  void AddTo(const v1::WatchLoadResponse& load, absl::Duration now,
             smg::grpc::common::KvEventBatch& batch);

  // Returns whether it is time for NextAlone.
  bool MayLook(absl::Duration now) const {
    return number_.has_value() && now - last_look_ >= kTick;
  }
  // Fills in a batch of a record alone, or returns false where none is due.
  bool NextAlone(const v1::WatchLoadResponse& load, absl::Duration now, absl::Time time,
                 smg::grpc::common::KvEventBatch& batch);

 private:
  void Number(smg::grpc::common::EngineLoad record, smg::grpc::common::KvEventBatch& batch);

  std::optional<uint64_t> number_;
  absl::Duration last_look_, last_record_;
  uint64_t num_records_ = 0;
  int num_idle_ = 0;  // records alone, one after the other, of a load that had not changed
  smg::grpc::common::EngineLoad last_;
};

}  // namespace continuo::server
