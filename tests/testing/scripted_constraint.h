// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "services/base/check.h"
#include "services/worker/engine/types/request.h"

namespace continuo {

// The demands of a scripted constraint at one place.
struct Scripted {
  bool restricts = true;
  std::function<bool(int32_t id)> allows = [](int32_t) { return true; };
  bool can_end = false, must_end = false;
  absl::Status mask_failure, accept_failure;  // of FillMask and Accept here
};
// Returns the demands after `ids`; a pure function that takes any ids.
using Script = std::function<Scripted(std::span<const int32_t> ids)>;

// A constraint that follows a script, asks it anew each time, and breaks off the test if the engine
// takes back more than it gave.
class ScriptedConstraint : public engine::TokenConstraint {
 public:
  explicit ScriptedConstraint(Script script, std::vector<int32_t> accepted = {})
      : script_(std::move(script)), ids_(std::move(accepted)) {}

  bool Restricts() override { return Here().restricts; }
  void FillMask(std::span<uint32_t> mask) override {
    ++num_masks_;
    const Scripted here = Here();
    failure_.Update(here.mask_failure);
    for (size_t id = 0; id < mask.size() * 32; ++id) {
      if (!here.allows(static_cast<int32_t>(id))) mask[id / 32] &= ~(uint32_t{1} << (id % 32));
    }
  }
  bool CanEnd() override { return Here().can_end; }
  bool MustEnd() override { return Here().must_end; }
  bool Accept(int32_t id) override {
    const Scripted here = Here();
    failure_.Update(here.accept_failure);
    if (!failure_.ok()) return false;
    if (here.restricts && (here.must_end || !here.allows(id))) return false;
    ids_.push_back(id);
    return true;
  }
  void Rollback(int count) override {
    CONTINUO_CHECK(count >= 0 && static_cast<size_t>(count) <= ids_.size());
    ids_.resize(ids_.size() - static_cast<size_t>(count));
    failure_ = absl::OkStatus();
    num_rolled_back_ += count;
  }
  absl::Status status() override { return failure_; }

  const Script& script() const { return script_; }
  const std::vector<int32_t>& accepted() const { return ids_; }
  int num_masks() const { return num_masks_; }
  int num_rolled_back() const { return num_rolled_back_; }

 private:
  Scripted Here() const { return script_(ids_); }

  const Script script_;
  std::vector<int32_t> ids_;
  absl::Status failure_;
  int num_masks_ = 0, num_rolled_back_ = 0;
};

// Gives every sequence of `request` a constraint that has accepted what it received, but for a stop
// id that ended it.
inline void Constrain(engine::Request& request, const Script& script) {
  request.constraints.clear();
  for (int i = 0; i < request.num_sequences; ++i) {
    std::vector<int32_t> ids;
    if (!request.received.empty()) ids = request.received[static_cast<size_t>(i)].tokens;
    if (!ids.empty() && std::ranges::binary_search(request.stop_ids, ids.back())) ids.pop_back();
    request.constraints.push_back(std::make_shared<ScriptedConstraint>(script, std::move(ids)));
  }
}

inline ScriptedConstraint& ConstraintOf(const engine::Request& request, int index = 0) {
  return dynamic_cast<ScriptedConstraint&>(*request.constraints.at(static_cast<size_t>(index)));
}

// Allows `open` and `close` in balance, at most `deepest` open; may end where none is open.
inline Script Balanced(int32_t open, int32_t close, int deepest) {
  return [=](std::span<const int32_t> ids) {
    int depth = 0;
    for (const int32_t id : ids) depth += id == open ? 1 : -1;
    Scripted here;
    here.allows = [=](int32_t id) {
      return (id == open && depth < deepest) || (id == close && depth > 0);
    };
    here.can_end = depth == 0 && !ids.empty();
    return here;
  };
}

// Allows exactly `count` multiples of `step`.
inline Script Multiples(int32_t step, size_t count) {
  return [=](std::span<const int32_t> ids) {
    Scripted here;
    here.can_end = here.must_end = ids.size() >= count;
    here.allows = [=](int32_t id) { return ids.size() < count && id % step == 0; };
    return here;
  };
}

// Allows even and odd ids in turn; may end after each odd one.
inline Script Alternating() {
  return [](std::span<const int32_t> ids) {
    const int32_t parity = static_cast<int32_t>(ids.size() % 2);
    Scripted here;
    here.allows = [=](int32_t id) { return id % 2 == parity; };
    here.can_end = ids.size() > 1 && parity == 0;
    return here;
  };
}

// Is free until one of `ends` comes, then follows `inner`.
inline Script AfterThought(std::set<int32_t> ends, Script inner) {
  return [ends = std::move(ends), inner = std::move(inner)](std::span<const int32_t> ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ends.contains(ids[i])) return inner(ids.subspan(i + 1));
    }
    Scripted here;
    here.restricts = false;
    return here;
  };
}

// Follows a small automaton made from `seed`: each state but one that must end lets the ids below 3
// come, and others; some may end. With `has_thoughts` some do not restrict.
inline Script RandomAutomaton(uint32_t seed, bool has_thoughts) {
  const auto hash = [seed](uint64_t a, uint64_t b) {
    uint64_t h = (seed + 1) * 0x9e3779b97f4a7c15 ^ (a << 32) ^ b;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9;
    h = (h ^ (h >> 27)) * 0x94d049bb133111eb;
    return h ^ (h >> 31);
  };
  const uint64_t num_states = 2 + hash(0, 1) % 5, end = 1 + hash(0, 2) % (num_states - 1);
  return [=](std::span<const int32_t> ids) {
    uint64_t state = 0;
    for (const int32_t id : ids) state = hash(state + 1, static_cast<uint64_t>(id)) % num_states;
    Scripted here;
    here.must_end = state == end && hash(0, 3) % 2 == 0;
    here.can_end = here.must_end || hash(state, 4) % 2 == 0;
    here.restricts = !has_thoughts || here.must_end || hash(state, 5) % 3 != 0;
    const bool is_over = here.must_end;
    here.allows = [=](int32_t id) {
      return !is_over && (id < 3 || hash(state, 100 + static_cast<uint64_t>(id)) % 4 == 0);
    };
    return here;
  };
}

}  // namespace continuo
