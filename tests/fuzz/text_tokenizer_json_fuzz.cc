// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json of any bytes is an error, or encodes and decodes within its own vocabulary.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto model = continuo::testing::OpenText({.tokenizer_json = bytes});
  if (!model.ok()) return 0;

  std::vector<int32_t> all;
  for (int32_t id = 0; id < (*model)->vocab_size(); ++id) all.push_back(id);
  CONTINUO_CHECK(continuo::IsUtf8((*model)->Decode(all, true).value()));
  for (const std::string_view text : {"", "hello world", " 12 don't 😀 é\n\n<s>ab"}) {
    const auto ids = (*model)->Encode(text, true);
    if (!ids.ok()) continue;
    for (const int32_t id : *ids) CONTINUO_CHECK(id >= 0 && id < (*model)->vocab_size());
    CONTINUO_CHECK((*model)->Decode(*ids, false).ok());
    CONTINUO_CHECK((*model)->Encode(text, true).value() == *ids);
  }
  return 0;
}
