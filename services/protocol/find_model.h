// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "continuo/v1/inference.pb.h"

namespace continuo::protocol {

// The model that a request means by `name`, which may be empty: then it is the only one of `models`
// that is no LoRA adapter. Null where there is none, or the name is empty and there are several.
inline const v1::Model* FindModel(const std::vector<v1::Model>& models, std::string_view name) {
  const auto is_meant = [name](const v1::Model& model) {
    return name.empty() ? model.parent().empty() : model.name() == name;
  };
  const auto found = std::ranges::find_if(models, is_meant);
  if (found == models.end()) return nullptr;
  if (name.empty() && std::any_of(found + 1, models.end(), is_meant)) return nullptr;
  return &*found;
}

}  // namespace continuo::protocol
