// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "services/worker/engine/schedule/scheduler.h"
#include "tests/testing/manual_clock.h"
#include "tests/testing/scripted_constraint.h"
#include "tests/worker/engine/simulated_model.h"

namespace continuo::engine {

// Counts what many simulations have met, to show that they meet everything.
struct SimulationTally {
  int64_t requests = 0, steps = 0, rows = 0, preemptions = 0, hit_tokens = 0, copies = 0;
  int64_t cancelled = 0, edge_finished = 0, timed_out = 0, time_limited = 0, continued = 0;
  int64_t tokens = 0, scores = 0;  // compared
  int64_t forked = 0, masked = 0, prompt_scores = 0, cut_steps = 0;
  int64_t constrained = 0, must_end = 0;  // requests; sequences that ended without an end token
  int64_t overlapped = 0, lost = 0;       // overlapped steps; samples lost to them
  // These count, of models with states, steps, tokens found in the cache, and copied blocks.
  int64_t state_steps = 0, state_hit_tokens = 0, state_copies = 0;
  int64_t states = 0;   // read and compared
  int64_t adapted = 0;  // requests with an adapter
  int64_t late = 0, widely_forked = 0, longest = 0, drafts = 0, right_drafts = 0;
};

// One random schedule, generated from a seed: requests of every kind arrive, are cancelled and
// finished, while the real scheduler runs them on `model` with a pool, batch and chunk of random
// small size, on a virtual clock. Compares every answer bit by bit with that of the request alone,
// and checks every event against the protocol of RequestEvent and every state with CheckInvariants.
class Simulation {
 public:
  // `tally` and `model` outlive the simulation. A model runs one simulation at a time.
  Simulation(uint32_t seed, SimulationTally* tally, SimulatedModel* model);
  ~Simulation();

  // Returns what went wrong first, or nothing.
  std::string Run();

 private:
  struct Client;

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng_); }
  bool Chance(int percent) { return Pick(1, 100) <= percent; }
  int32_t PickToken() { return Pick(0, vocab_size_ - 1); }
  Moment Now() const { return {clock_.Now(), clock_.Elapsed()}; }
  void Fail(const std::string& what);

  Request MakeRequest();
  Request MakeStateRead(Request request);
  void MakeContinuation(Request& request);
  void MakeBars(Request& request);
  Script MakeScript();
  void MakeExtreme(Request& request);
  void Submit();
  void Receive(Client& client, RequestEvent event);
  void ReceiveDelta(Client& client, SequenceDelta& delta);
  void CheckEnd(Client& client, const RequestEvent& event);
  void CheckConstraint(const Client& client, int index);
  void Disturb();
  void Begin();
  void Step();

  std::mt19937 rng_;
  SimulationTally& tally_;
  SimulatedModel& model_;
  std::string failure_;
  SimulatedSizes sizes_;
  int vocab_size_ = 0;
  bool priorities_ = false;
  bool embeds_ = false;    // requests read states
  bool extremes_ = false;  // requests have extreme values in any field
  int num_tenants_ = 1;
  ManualClock clock_;
  EngineMetrics metrics_;
  EngineOptions options_;
  absl::Duration row_cost_;
  std::unique_ptr<model::Executor> executor_;
  std::unique_ptr<Scheduler> scheduler_;
  std::vector<std::vector<int32_t>> prefixes_;
  std::map<RequestId, std::unique_ptr<Client>> clients_;
  std::map<std::pair<std::string, int>, int> preempted_;
  int to_submit_ = 0;
  std::deque<std::pair<absl::Duration, absl::Duration>> begun_;  // when it began, how long it takes
};

}  // namespace continuo::engine
