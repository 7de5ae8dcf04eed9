// SPDX-License-Identifier: Apache-2.0
// A JSON schema of any bytes is refused, or what is said under it is JSON.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/fuzz/grammar_walk.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string source(reinterpret_cast<const char*>(data), size);
  const std::string answer =
      continuo::testing::FuzzGrammar(continuo::text::GrammarSource::Kind::kJsonSchema, source);
  // Numbers beyond doubles are JSON, but this reader refuses them.
  CONTINUO_CHECK(answer.empty() || answer.find_first_of("eE0123456789") != std::string::npos ||
                 nlohmann::json::accept(answer));
  return 0;
}
