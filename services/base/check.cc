// SPDX-License-Identifier: Apache-2.0
#include "services/base/check.h"

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace continuo {
namespace {

// Writes `text` as the inside of a JSON string, cut if it does not fit. Allocates nothing, because
// the heap may be broken.
template <size_t kSize>
void Escape(const char* text, char (&out)[kSize]) {
  size_t size = 0;
  for (; *text != '\0' && size + 7 < kSize; ++text) {
    const auto c = static_cast<unsigned char>(*text);
    if (c == '"' || c == '\\') {
      out[size++] = '\\';
      out[size++] = *text;
    } else if (c < 0x20) {
      size += static_cast<size_t>(std::snprintf(out + size, 7, "\\u%04x", c));
    } else {
      out[size++] = *text;
    }
  }
  out[size] = '\0';
}

}  // namespace

void CheckFailed(const char* file, int line, const char* condition) {
  char escaped_condition[1024], escaped_file[512];
  Escape(condition, escaped_condition);
  Escape(file, escaped_file);
  std::fprintf(
      stderr,
      "{\"severity\":\"FATAL\",\"message\":\"check failed: %s\",\"file\":\"%s\",\"line\":%d}\n",
      escaped_condition, escaped_file, line);
  std::abort();
}

}  // namespace continuo
