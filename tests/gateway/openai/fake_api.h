// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "services/gateway/openai/api.h"

namespace continuo::gateway::openai {

// The API of one model, "org/fake", in front of a fake service that also has loads() and text().
template <typename Service>
ApiDependencies FakeApi(Service* service, const Clock* clock) {
  return {.service = service,
          .clock = clock,
          .models =
              [](const ClientCall& /*call*/) {
                v1::Model model;
                model.set_name("org/fake");
                return std::vector{model};
              },
          .ready = [service] { return service->is_ready(); },
          .metrics = [] { return std::string("a 1\n"); },
          .load_metrics = [] { return std::string("load 1\n"); },
          .fleet = [service] { return service->loads(); },
          .text = service->text(),
          .secret = service->secret(),
          .version = "1.2.3"};
}

}  // namespace continuo::gateway::openai
