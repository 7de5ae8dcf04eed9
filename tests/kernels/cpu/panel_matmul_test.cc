// SPDX-License-Identifier: Apache-2.0
// Tests that products of integers have the same bits whatever instructions multiply them, for as
// many rows as each has tiles for.
#include "kernels/cpu/matmul/panel_matmul.h"

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "tests/kernels/grouped_weight.h"

namespace continuo::testing {
namespace {

using kernels::cpu::CpuContext;
using kernels::cpu::KernelTable;
using kernels::cpu::PanelMatMul;
using kernels::cpu::PanelProduct;

class PanelMatMulTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Formats, PanelMatMulTest,
                         ::testing::Range(0, static_cast<int>(GroupCases().size())));

TEST_P(PanelMatMulTest, EveryTableGivesTheSameBits) {
  const GroupCase c = GroupCases()[static_cast<size_t>(GetParam())];
  constexpr int64_t kColumns = 50;  // the last panel is not full
  Random random(85);
  const std::unique_ptr<kernels::Device> scalar = MakeCpu("scalar");
  const std::vector<const KernelTable*> tables = kernels::cpu::AllKernels();
  // One split has several chunks of K, another is shorter than a chunk. Where scales share no
  // factor, the last unit may be shorter.
  const int64_t tail = c.groups.scales == kernels::GroupScales::kShared ? 0 : c.groups.size;
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{0, 9 * 256 + tail}, {0, 3 * 256, 5 * 256 + tail}}) {
    const StoredMatrix stored(c, kColumns, splits.back(), random);
    const GroupedWeight w(*scalar, stored, stored.Elements(), splits);
    for (const int64_t rows : {1, 5, 7, 8, 9, 13, 14, 15, 16, 17, 31, 32, 33, 50}) {
      const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, splits.back(), random);
      HostTensor expected;
      for (const KernelTable* table : tables) {
        CpuContext context(*table, /*num_threads=*/1, {});
        HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, kColumns);
        const std::vector<PanelProduct> products = {{.out = out, .w = w.weight(), .x_row = 0}};
        PanelMatMul(context).Run(products, x, /*x_rows=*/nullptr, rows, splits);
        if (table == tables.front()) expected = out;
        ASSERT_TRUE(out.SameBits(expected)) << c.name << ", " << rows << " rows, " << table->name
                                            << ", " << splits.size() - 1 << " splits";
      }
    }
  }
}

}  // namespace
}  // namespace continuo::testing
