// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/answer_printer.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

namespace continuo::cli {
namespace {

v1::GenerateResponse Said(const std::string& reasoning, const std::string& text) {
  v1::GenerateResponse response;
  v1::Delta& delta = *response.add_deltas();
  delta.set_reasoning(reasoning);
  delta.set_text(text);
  return response;
}

std::string Printed(bool terminal, const std::vector<v1::GenerateResponse>& responses) {
  std::istringstream in;
  std::ostringstream out, err;
  const Console console{in, out, err, terminal, terminal};
  AnswerPrinter printer(console, 1);
  for (const v1::GenerateResponse& response : responses) printer.Take(response);
  printer.End();
  return out.str();
}

TEST(AnswerPrinterTest, ThoughtsAreShownOnATerminalAlone) {
  const std::vector<v1::GenerateResponse> responses = {Said("Hm", ""), Said(" so", "Yes"),
                                                       Said("", ".")};
  EXPECT_EQ(Printed(true, responses), "Hm so\n\nYes.\n");
  EXPECT_EQ(Printed(false, responses), "Yes.\n");
}

TEST(AnswerPrinterTest, AThoughtWithoutAnAnswerEndsItsLine) {
  EXPECT_EQ(Printed(true, {Said("Hm", "")}), "Hm\n");
  EXPECT_EQ(Printed(false, {Said("Hm", "")}), "");
  EXPECT_EQ(Printed(false, {Said("", "a\n")}), "a\n");
}

}  // namespace
}  // namespace continuo::cli
