// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/fleet_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

namespace continuo::gateway::openai {
namespace {

using OrderedJson = nlohmann::ordered_json;

}  // namespace

std::string FleetJson(const LoadSnapshot& snapshot) {
  std::vector<std::shared_ptr<const WorkerLoad>> workers = snapshot.workers;
  std::ranges::sort(workers, [](const auto& a, const auto& b) {
    return std::tie(a->worker, a->model, a->address) < std::tie(b->worker, b->model, b->address);
  });
  OrderedJson list = OrderedJson::array();
  for (const auto& load : workers) {
    if (!load->parent.empty()) continue;  // it is told with the model that it adapts
    list.push_back({{"worker", load->worker},
                    {"model", load->model},
                    {"state", WorkerStateName(load->state)},
                    {"slow", load->slow},
                    {"running", load->running_requests},
                    {"waiting", load->waiting_requests},
                    {"kv_blocks_used", load->used_kv_blocks},
                    {"kv_blocks_total", load->total_kv_blocks}});
    if (load->total_state_slots > 0) {
      list.back()["state_slots_used"] = load->used_state_slots;
      list.back()["state_slots_total"] = load->total_state_slots;
    }
    OrderedJson adapters = OrderedJson::array();
    for (const auto& other : workers) {
      if (other->address == load->address && other->parent == load->model) {
        adapters.push_back(other->model);
      }
    }
    if (!adapters.empty()) list.back()["adapters"] = std::move(adapters);
  }
  return OrderedJson{{"workers", std::move(list)}}.dump(-1, ' ', false,
                                                        OrderedJson::error_handler_t::replace);
}

}  // namespace continuo::gateway::openai
