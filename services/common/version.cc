// SPDX-License-Identifier: Apache-2.0
#include "services/common/version.h"

namespace continuo::common {

std::string_view Version() { return CONTINUO_VERSION; }

}  // namespace continuo::common
