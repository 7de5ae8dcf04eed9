// SPDX-License-Identifier: Apache-2.0
#include "services/worker/server/session/served_model.h"

#include <algorithm>
#include <memory>
#include <string_view>

#include "services/base/utf8.h"

namespace continuo::server {

void FinishServedModel(ServedModel& model) {
  model.fill_in_middle = FindFillInMiddle(*model.text);
  model.thought_marks = ThoughtMarks::Find(*model.text);
  model.grammars = std::make_shared<text::GrammarCompiler>(model.text);
  std::sort(model.eos_ids.begin(), model.eos_ids.end());
  model.eos_ids.erase(std::unique(model.eos_ids.begin(), model.eos_ids.end()), model.eos_ids.end());
  model.special_tokens = text::SpecialTokensOf(*model.text, model.eos_ids);
  const text::CallTool probe = {.name = "f"};
  model.call_grammar_status =
      text::CallGrammar(model.text->response_format(), {&probe, 1}, model.special_tokens, {})
          .status();
  // Each byte of half a character may become a U+FFFD of three bytes.
  model.max_text_bytes_per_token = 3;
  model.max_token_bytes = 1;
  const int32_t num_texts = std::min<int32_t>(model.vocab_size, model.text->vocab_size());
  for (int32_t id = 0; id < num_texts; ++id) {
    const std::string_view bytes = model.text->TokenBytes(id);
    model.max_token_bytes =
        std::max(model.max_token_bytes,
                 model.text->IsSpecial(id) ? model.text->TokenName(id).size() : bytes.size());
    model.max_text_bytes_per_token =
        std::max(model.max_text_bytes_per_token, IsUtf8(bytes) ? bytes.size() : 3 * bytes.size());
  }
}

}  // namespace continuo::server
