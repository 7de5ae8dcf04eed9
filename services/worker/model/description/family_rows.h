// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "services/worker/model/description/family.h"

namespace continuo::model {

// The rows of Families(), each file's in the order in which people read them.
std::span<const Family> DenseFamilies();
std::span<const Family> ExpertFamilies();
std::span<const Family> StateFamilies();

}  // namespace continuo::model
