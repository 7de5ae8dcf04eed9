// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "gtest/gtest.h"
#include "tests/conformance/model/hf_goldens.h"

namespace continuo::testing {

// The logits of a family's model in fp32 on a device, in chunks. The cases run on whatever is
// linked: the shim or a device.
inline void CheckHfLogits(const std::string& device, const std::string& model, double tolerance) {
  const auto folder = ModelFolder::Of(model);
  const HfGolden golden = ReadHfGolden(model);
  auto harness =
      ModelHarness::Make(folder->path(), {.device = device, .num_blocks = 24, .block_size = 4});
  ASSERT_TRUE(harness.ok()) << harness.status();
  for (const int chunk : {16, 5, 1}) {
    EXPECT_LE(LargestError(**harness, golden, chunk), tolerance) << "chunks of " << chunk;
  }
}

}  // namespace continuo::testing
