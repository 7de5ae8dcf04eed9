// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/schedule/preemption.h"

#include <algorithm>
#include <span>

#include "services/worker/engine/requests/preemption_order.h"

namespace continuo::engine {

void Preemption::MakeRoom(PlannedStep& step) {
  MakeRoomForPriority(step);
  MakeRoomForTenant(step);
}

void Preemption::MakeRoomForPriority(PlannedStep& step) {
  const std::span<Sequence* const> running = residency_.running();
  if (book_.waiting().empty() || running.empty()) return;
  const Sequence& s = *book_.waiting().front();
  if (Priority(*running.back()) >= Priority(s)) return;
  for (Sequence* t : running) t->may_yield = Priority(*t) < Priority(s);
  TakePlace(s, step);
}

// The head of the queue, whose tenant has a deficit, takes the places of the youngest sequences of
// tenants that hold more than an equal share of the blocks or of the places. Each sequence yields
// at most once.
void Preemption::MakeRoomForTenant(PlannedStep& step) {
  if (book_.waiting().empty() || residency_.running().empty() || book_.tenants().num_live() < 2) {
    return;
  }
  const Sequence& s = *book_.waiting().front();
  if (s.guaranteed || IsUnhelped(s)) return;
  if (!MarkYielding(s) || TakePlace(s, step)) return;
  unhelped_ticket_ = s.queue_ticket;
  unhelped_at_ = residency_.num_releases();
}

bool Preemption::MayPreempt() const {
  const std::span<Sequence* const> running = residency_.running();
  if (book_.waiting().empty() || running.empty()) return false;
  const Sequence& s = *book_.waiting().front();
  if (Priority(*running.back()) < Priority(s)) return true;
  if (book_.tenants().num_live() < 2 || s.guaranteed || IsUnhelped(s)) return false;
  return std::ranges::any_of(running, [&](const Sequence* t) {
    return book_.tenants().HasDeficit(*s.request->tenant, *t->request->tenant);
  });
}

// Sets may_yield of every running sequence: whether it yields to `s`. Returns whether any does.
bool Preemption::MarkYielding(const Sequence& s) {
  const std::span<Sequence* const> running = residency_.running();
  for (Sequence* t : running) t->request->tenant->held = t->request->tenant->num_running = 0;
  for (Sequence* t : running) {
    t->request->tenant->held += static_cast<int64_t>(t->blocks.size());
    ++t->request->tenant->num_running;
  }
  const int num_tenants = book_.tenants().num_live();
  bool any = false;
  for (auto it = running.rbegin(); it != running.rend(); ++it) {
    Sequence& t = **it;
    Tenant& tenant = *t.request->tenant;
    t.may_yield = !t.guaranteed && Priority(t) <= Priority(s) &&
                  book_.tenants().HasDeficit(*s.request->tenant, tenant) &&
                  (tenant.held * num_tenants > residency_.pool().num_blocks() ||
                   int64_t{tenant.num_running} * num_tenants > residency_.max_running());
    if (!t.may_yield) continue;
    tenant.held -= static_cast<int64_t>(t.blocks.size());
    --tenant.num_running;
    any = true;
  }
  return any;
}

// Preempts sequences that may yield, the last in preemption order first, until `s` fits; none of
// them if it would not fit without all. Returns whether `s` fits.
bool Preemption::TakePlace(const Sequence& s, PlannedStep& step) {
  const auto fits_now = [&] {
    return residency_.running().empty() ||
           (residency_.num_running() < residency_.max_running() && residency_.Fits(s));
  };
  const auto stays = [](const Sequence& t) { return !t.may_yield; };
  const auto num_staying =
      std::ranges::count_if(residency_.running(), [&](const Sequence* t) { return stays(*t); });
  if (num_staying >= residency_.max_running() ||
      (num_staying > 0 && !residency_.FitsBeside(s, stays))) {
    return false;
  }
  while (!fits_now()) {
    const std::span<Sequence* const> running = residency_.running();
    const auto last = std::ranges::find_if(running.rbegin(), running.rend(),
                                           [](const Sequence* t) { return t->may_yield; });
    if (last == running.rend()) return false;
    residency_.Preempt(**last, step);
  }
  return true;
}

}  // namespace continuo::engine
