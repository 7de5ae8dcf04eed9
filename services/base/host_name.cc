// SPDX-License-Identifier: Apache-2.0
#include "services/base/host_name.h"

#include <unistd.h>

#include <array>

namespace continuo {

std::string HostName(std::string fallback) {
  std::array<char, 256> name = {};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : fallback;
}

}  // namespace continuo
