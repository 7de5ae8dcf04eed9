// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "services/worker/engine/requests/sequence.h"

namespace continuo::engine {

inline int Priority(const Sequence& s) { return s.request->request.priority; }

// Returns whether `a` keeps its blocks when `b` has to give up its own, whoever arrived first.
inline bool Outranks(const Sequence& a, const Sequence& b) {
  if (Priority(a) != Priority(b)) return Priority(a) > Priority(b);
  return a.guaranteed && !b.guaranteed;
}

// Orders running sequences; the last one is the first to be preempted.
inline bool IsPreemptedAfter(const Sequence* a, const Sequence* b) {
  if (Outranks(*a, *b)) return true;
  if (Outranks(*b, *a)) return false;
  if (a->request->order != b->request->order) return a->request->order < b->request->order;
  return a->index < b->index;
}

}  // namespace continuo::engine
