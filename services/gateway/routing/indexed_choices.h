// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "services/gateway/routing/load_view.h"
#include "services/gateway/routing/policy.h"

namespace continuo::gateway {

// The choices of a request among the workers of a snapshot, numbered as there, found by its table
// without a look at each worker. Workers that may be asked for and turn out not to take requests
// are left out as they are met; where too many are, nothing is found, and a list of all candidates
// tells. Lives for one pick.
class IndexedChoices : public Choices {
 public:
  // A worker with the requests that are on their way to it; nothing where it takes none now.
  using Find = absl::FunctionRef<std::optional<Candidate>(uint32_t number)>;

  // Everything passed outlives the choices. The model is the one that the key means.
  IndexedChoices(const LoadSnapshot& snapshot, std::string_view model, const RouteKey& key,
                 Find find, absl::BitGenRef random);

  // The last worker of a client's continuation if it is one of the most preferred (FindLastWorker).
  std::optional<size_t> LastWorker() const;

  Candidate At(size_t number) const override;
  std::optional<size_t> Any(absl::BitGenRef random) const override;
  std::optional<size_t> AnyFree(double most, absl::BitGenRef random) const override;
  double MeanCost() const override;
  std::optional<size_t> Nearest(uint64_t hash, double most) const override;

 private:
  // The worker, if it may be chosen.
  std::optional<Candidate> Valid(uint32_t number) const;
  bool IsException(uint32_t number) const;
  const GroupLoad& LoadOf(const RouteGroup& group) const {
    return snapshot_.group_loads[group.number];
  }

  const LoadSnapshot& snapshot_;
  const std::string_view model_;
  const RouteKey& key_;
  const Find find_;
  // Serving workers of the model where the request has failed or was rejected.
  absl::InlinedVector<uint32_t, 4> exceptions_;
  // The Preference of all choices; negative where there are none.
  int preference_ = kNeverPreferred;
  // The groups to choose from, without the exceptions; empty where only exceptions are left.
  absl::InlinedVector<const RouteGroup*, 4> groups_;
  size_t num_serving_ = 0;  // In the groups.
  // Keeps the candidates that Any has found, for At.
  mutable absl::InlinedVector<std::pair<uint32_t, Candidate>, 2> found_;
};

}  // namespace continuo::gateway
