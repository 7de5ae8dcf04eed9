// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "absl/container/btree_set.h"
#include "services/worker/engine/sequence.h"

namespace continuo {

// Sequences that wait for room, in the order in which they are admitted: higher priority first;
// within one, those that have begun (preempted, or siblings whose prompt is read), then moves,
// then new work; first come, first served. Not thread-safe.
class WaitingQueue {
 public:
  void Insert(Sequence* s) { set_.insert(s); }
  void Erase(Sequence* s) { set_.erase(s); }
  bool empty() const { return set_.empty(); }
  Sequence* front() const { return *set_.begin(); }
  auto begin() const { return set_.begin(); }
  auto end() const { return set_.end(); }

  static bool HasBegun(const Sequence& s) { return s.guaranteed || s.request->admitted; }

 private:
  struct Before {
    static int Class(const Sequence& s) {
      return HasBegun(s) ? 0 : s.request->request.is_move ? 1 : 2;
    }
    bool operator()(const Sequence* a, const Sequence* b) const {
      const Request &x = a->request->request, &y = b->request->request;
      if (x.priority != y.priority) return x.priority > y.priority;
      if (Class(*a) != Class(*b)) return Class(*a) < Class(*b);
      if (a->request->order != b->request->order) return a->request->order < b->request->order;
      return a->index < b->index;
    }
  };
  // What the order depends on does not change while a sequence is in here.
  absl::btree_set<Sequence*, Before> set_;
};

}  // namespace continuo
