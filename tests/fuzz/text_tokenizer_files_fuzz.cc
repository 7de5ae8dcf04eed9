// SPDX-License-Identifier: Apache-2.0
// A tokenizer of any bytes in another file than tokenizer.json is an error, or encodes and decodes
// within its own vocabulary. The first byte of the input chooses the file's name; the rest is the
// file.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/text/continuo_text.h"

namespace {

constexpr std::string_view kNames[] = {"tekken.json", "tokenizer.model", "qwen.tiktoken"};
// The rule for words of a file of ranks that is none of Qwen's.
constexpr std::string_view kConfigs[] = {
    "", R"({"pat_str": "\\p{L}+|\\p{N}|[^\\s\\p{L}\\p{N}]+|\\s+", "added_tokens_decoder": {}})"};

ContinuoSlice SliceOf(std::string_view text) { return {text.data(), text.size()}; }

std::vector<int32_t> Encode(const ContinuoText* text, std::string_view utf8) {
  ContinuoIds ids;
  if (continuo_text_encode(text, SliceOf(utf8), 1, &ids) != CONTINUO_TEXT_OK) return {};
  std::vector<int32_t> result(ids.data, ids.data + ids.size);
  continuo_ids_free(ids);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view name = kNames[data[0] % std::size(kNames)];
  const std::string_view config = kConfigs[data[0] / std::size(kNames) % std::size(kConfigs)];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  ContinuoText* const text =
      continuo_text_open_texts(SliceOf("model"), SliceOf(name), SliceOf(bytes), SliceOf(config));
  if (text == nullptr) return 0;
  ContinuoTokenTable table;
  continuo_text_token_table(text, &table);
  for (const std::string_view utf8 : {"", "hello world", " 12 don't 😀 é\n\n<s>ab"}) {
    const std::vector<int32_t> ids = Encode(text, utf8);
    for (const int32_t id : ids) {
      CONTINUO_CHECK(id >= 0 && static_cast<size_t>(id) < table.num_tokens);
    }
    CONTINUO_CHECK(Encode(text, utf8) == ids);
  }
  continuo_text_free(text);
  return 0;
}
