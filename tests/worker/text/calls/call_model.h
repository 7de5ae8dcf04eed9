// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/base/check.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/text_files.h"
#include "tests/worker/text/test_files.h"

namespace continuo::testing {

// A vocabulary of all bytes, some words, and these tokens more.
inline std::unique_ptr<text::TextModel> OpenModelWith(const std::vector<std::string>& special,
                                                      const std::vector<std::string>& plain) {
  nlohmann::ordered_json json = nlohmann::ordered_json::parse(
      ReadFile(SourcePath("tests/worker/text/testdata/byte_level/tokenizer.json")));
  int id = json["model"]["vocab"].size() + json["added_tokens"].size();
  const auto add = [&](const std::string& text, bool is_special) {
    nlohmann::ordered_json token = json["added_tokens"][0];
    token["id"] = id++;
    token["content"] = text;
    token["special"] = is_special;
    json["added_tokens"].push_back(token);
  };
  for (const std::string& text : special) add(text, true);
  for (const std::string& text : plain) add(text, false);
  auto model = OpenText({.tokenizer_json = json.dump()});
  EXPECT_TRUE(model.ok()) << model.status();
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}

}  // namespace continuo::testing
