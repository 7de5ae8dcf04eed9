// SPDX-License-Identifier: Apache-2.0
#include "services/worker/engine/requests/waiting_queue.h"

#include <algorithm>
#include <tuple>

namespace continuo::engine {
namespace {

int Class(const Sequence& s) {
  const Request& r = s.request->request;
  if (s.guaranteed || s.request->admitted || r.is_migration) return 0;
  return r.received.empty() ? 2 : 1;
}

}  // namespace

bool WaitingQueue::BeforeInLine::operator()(const Sequence* a, const Sequence* b) const {
  return std::tuple(Class(*a), a->request->order, a->index) <
         std::tuple(Class(*b), b->request->order, b->index);
}

bool WaitingQueue::Before::operator()(const Line* a, const Line* b) const {
  const auto key = [](const Line& line) {
    const Sequence& first = **line.sequences.begin();
    return std::tuple(-int64_t{line.priority}, line.num_migrations == 0, line.virtual_tokens,
                      first.request->order, first.index);
  };
  return key(*a) < key(*b);
}

WaitingQueue::Line& WaitingQueue::LineOf(const Sequence& s) {
  const int priority = s.request->request.priority;
  std::unique_ptr<Line>& line = lines_[{s.request->tenant, priority}];
  if (line == nullptr) {
    line = std::make_unique<Line>();
    line->priority = priority;
    line->tenant = s.request->tenant;
  }
  return *line;
}

void WaitingQueue::Place(Line& line) {
  line.virtual_tokens = line.tenant->virtual_tokens;
  order_.insert(&line);
}

void WaitingQueue::Insert(Sequence* s) {
  Line& line = LineOf(*s);
  if (!line.sequences.empty()) order_.erase(&line);
  line.sequences.insert(s);
  line.num_migrations += s->request->request.is_migration;
  Place(line);
}

void WaitingQueue::Erase(Sequence* s) {
  Line& line = LineOf(*s);
  order_.erase(&line);
  line.sequences.erase(s);
  line.num_migrations -= s->request->request.is_migration;
  if (line.sequences.empty()) {
    lines_.erase({line.tenant, line.priority});
  } else {
    Place(line);
  }
}

// Virtual tokens only grow, so a line is at its right place or too far in front.
Sequence* WaitingQueue::front() {
  Line* line = *order_.begin();
  while (line->virtual_tokens != line->tenant->virtual_tokens) {
    order_.erase(order_.begin());
    Place(*line);
    line = *order_.begin();
  }
  return *line->sequences.begin();
}

std::vector<const Sequence*> WaitingQueue::InOrder() const {
  // Sort by priority, then by turn within the tenant, then by the place of the tenant.
  std::vector<std::tuple<int64_t, size_t, size_t, const Sequence*>> entries;
  size_t place = 0;
  for (const Line* line : order_) {
    size_t turn = 0;
    for (const Sequence* s : line->sequences) {
      entries.emplace_back(-int64_t{line->priority}, turn++, place, s);
    }
    ++place;
  }
  std::ranges::sort(entries, {}, [](const auto& e) {
    return std::tuple(std::get<0>(e), std::get<1>(e), std::get<2>(e));
  });
  std::vector<const Sequence*> sequences;
  sequences.reserve(entries.size());
  for (const auto& entry : entries) sequences.push_back(std::get<3>(entry));
  return sequences;
}

}  // namespace continuo::engine
