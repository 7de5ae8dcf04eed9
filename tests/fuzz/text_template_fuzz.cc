// SPDX-License-Identifier: Apache-2.0
// A chat template of any bytes is an error, or renders UTF-8, the same text twice and end tokens of
// the vocabulary (one in eight renders again). The bytes after a zero byte are the template's
// arguments.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "services/base/check.h"
#include "services/base/utf8.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const size_t split = bytes.find('\0');
  const auto model = continuo::testing::OpenText(
      {.tokenizer_json = R"({"version": "1.0", "added_tokens": [],
           "model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}})",
       .tokenizer_config_json = R"({"bos_token": "<s>", "eos_token": "</s>"})",
       .chat_template = bytes.substr(0, split)});
  if (!model.ok()) return 0;

  static int64_t num_runs = 0;
  ++num_runs;
  if (num_runs % 8 == 0) {
    for (const int32_t id : (*model)->EndIds({})) {
      CONTINUO_CHECK(id >= 0 && id < (*model)->vocab_size());
    }
  }
  continuo::text::ChatPrompt prompt;
  prompt.messages = {{.role = "system", .content = "Be brief."},
                     {.role = "user", .content = "2 < 3 'é' \"😀\"?"},
                     {.role = "assistant", .content = " yes ", .reasoning = "sure"}};
  if (split != std::string_view::npos) prompt.template_arguments = bytes.substr(split + 1);
  for (const bool continue_final_message : {false, true}) {
    prompt.continue_final_message = continue_final_message;
    const auto first = (*model)->RenderChat(prompt);
    CONTINUO_CHECK(first.ok() || first.status().code() == absl::StatusCode::kInvalidArgument ||
                   first.status().code() == absl::StatusCode::kFailedPrecondition);
    if (!first.ok()) break;
    CONTINUO_CHECK(continuo::IsUtf8(*first));
    if (num_runs % 8 != 0) continue;
    const auto second = (*model)->RenderChat(prompt);
    CONTINUO_CHECK(second.ok() && *first == *second);
  }
  return 0;
}
