// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "kernels/device.h"

namespace continuo::testing {

// The choice of a router for one row.
struct RouterChoice {
  std::vector<float> logits;  // of all experts
  std::vector<int> experts;   // the chosen ones, ascending
  // The choice is the same if every logit moves by up to this, in whatever directions. At most 1.
  double margin = 0;
};

// The choices of a model's routers: those of a pass's rows, layer by layer, pass after pass.
using RouterLog = std::vector<RouterChoice>;

// Returns a device that does what `device` does and writes the choices of its RouteExperts to
// `log`, for which it waits: no part of a graph may route. Both outlive it.
std::unique_ptr<kernels::Device> LogRouters(kernels::Device& device, RouterLog& log);

}  // namespace continuo::testing
