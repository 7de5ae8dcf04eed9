// SPDX-License-Identifier: Apache-2.0
#include "services/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace continuo {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(
      stderr,
      "{\"severity\":\"FATAL\",\"message\":\"check failed: %s\",\"file\":\"%s\",\"line\":%d}\n",
      condition, file, line);
  std::abort();
}

}  // namespace continuo
