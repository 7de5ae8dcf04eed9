// SPDX-License-Identifier: Apache-2.0
// A regular expression of any bytes is refused, or restricts what is said.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string source(reinterpret_cast<const char*>(data), size);
  continuo::testing::FuzzGrammar(continuo::text::GrammarSource::Kind::kRegex, source);
  return 0;
}
