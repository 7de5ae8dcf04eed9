// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "services/gateway/openai/api.h"

namespace continuo::gateway::openai {

// The API of one model, "org/fake", in front of a fake that also tells loads().
template <typename Front>
ApiParts FakeApi(Front* front, const Clock* clock) {
  return {.front = front,
          .clock = clock,
          .models =
              [] {
                v1::Model model;
                model.set_name("org/fake");
                return std::vector{model};
              },
          .ready = [] { return true; },
          .metrics = [] { return std::string("a 1\n"); },
          .fleet = [front] { return front->loads(); }};
}

}  // namespace continuo::gateway::openai
