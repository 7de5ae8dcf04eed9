// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "services/base/check.h"
#include "services/worker/text/text_model.h"
#include "tests/testing/shared_data.h"

namespace continuo::testing {

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Returns one of the models of tests/worker/text/testdata, which make_testdata.py writes.
inline std::unique_ptr<text::TextModel> OpenTestModel(const std::string& name) {
  auto model = text::TextModel::Open(SourcePath("tests/worker/text/testdata/" + name));
  EXPECT_TRUE(model.ok()) << model.status();
  CONTINUO_CHECK(model.ok());
  return *std::move(model);
}

// Returns the first token with these bytes, special or not; -1 where there is none.
inline int32_t IdOf(const text::TextModel& model, std::string_view bytes) {
  for (int32_t id = 0; id < model.vocab_size(); ++id) {
    if (model.TokenBytesKeepSpecial(id) == bytes) return id;
  }
  return -1;
}

}  // namespace continuo::testing
