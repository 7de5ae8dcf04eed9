// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "services/worker/engine/requests/request_book.h"
#include "services/worker/engine/schedule/planned_step.h"
#include "services/worker/engine/schedule/residency.h"

namespace continuo::engine {

// Decides which running sequences yield their places and blocks to the head of the queue. (Those
// that yield for want of a block to decode into: Residency::ReserveNextTokens.) Not thread-safe.
class Preemption {
 public:
  // All arguments outlive this object.
  Preemption(RequestBook* book, Residency* residency) : book_(*book), residency_(*residency) {}

  // Preempts for the head of the queue, if that has a higher priority or its tenant a deficit, and
  // if it fits then.
  void MakeRoom(PlannedStep& step);
  // Returns whether MakeRoom may preempt at the next step: more often than it happens.
  bool MayPreempt() const;

 private:
  void MakeRoomForPriority(PlannedStep& step);
  void MakeRoomForTenant(PlannedStep& step);
  bool MarkYielding(const Sequence& s);
  bool TakePlace(const Sequence& s, PlannedStep& step);
  bool IsUnhelped(const Sequence& s) const {
    return unhelped_ticket_ == s.queue_ticket && unhelped_at_ == residency_.num_releases();
  }

  RequestBook& book_;
  Residency& residency_;
  // The last sequence that would not have fitted after others had yielded to its tenant, by its
  // queue ticket, and the number of releases then.
  uint64_t unhelped_ticket_ = 0, unhelped_at_ = 0;
};

}  // namespace continuo::engine
