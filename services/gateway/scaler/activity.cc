// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/scaler/activity.h"

namespace continuo::gateway {

std::optional<bool> Activity::Next(bool has_demand, bool is_served, absl::Duration now) {
  if (has_demand) demand_time_ = now;
  const bool is_active = has_demand || (sent_.value_or(false) && now - demand_time_ < kQuiet);
  const bool is_repeated = has_demand && !is_served && now - sent_time_ >= kRepeat;
  if (sent_ == is_active && !is_repeated) return std::nullopt;
  sent_ = is_active;
  sent_time_ = now;
  return is_active;
}

}  // namespace continuo::gateway
