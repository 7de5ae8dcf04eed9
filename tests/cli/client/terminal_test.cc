// SPDX-License-Identifier: Apache-2.0
#include "services/cli/client/terminal.h"

#include <gtest/gtest.h>

#include <limits>

namespace continuo::cli {
namespace {

TEST(ForTerminalTest, TextStays) { EXPECT_EQ(ForTerminal("aé€😀\n\tz\u00a0"), "aé€😀\n\tz\u00a0"); }

TEST(ForTerminalTest, EscapesCannotPass) {
  EXPECT_EQ(ForTerminal("\x1b[2J"), "\ufffd[2J");
  EXPECT_EQ(ForTerminal("a\rb\x07\x7f"),
            "a\ufffd"
            "b\ufffd\ufffd");
  EXPECT_EQ(ForTerminal("\u009b31m"), "\ufffd31m");  // CSI in one character.
}

TEST(ProgressBarTest, FillsFromTheLeftAndIsCut) {
  EXPECT_EQ(ProgressBar(0, 4), "[    ] 0%");
  EXPECT_EQ(ProgressBar(0.5, 4), "[##  ] 50%");
  EXPECT_EQ(ProgressBar(7, 4), "[####] 100%");
  EXPECT_EQ(ProgressBar(std::numeric_limits<double>::quiet_NaN(), 4), "[    ] 0%");
}

TEST(FormatTest, ThreeDigits) {
  EXPECT_EQ(FormatSeconds(1.2345), "1.23 s");
  EXPECT_EQ(FormatSeconds(0.0456), "45.6 ms");
  EXPECT_EQ(FormatSeconds(0.000789), "789 us");
  EXPECT_EQ(FormatCount(999), "999");
  EXPECT_EQ(FormatCount(12345), "12.3k");
  EXPECT_EQ(FormatCount(4.56e6), "4.56M");
  EXPECT_EQ(FormatCount(1.5), "1.50");
}

}  // namespace
}  // namespace continuo::cli
