// SPDX-License-Identifier: Apache-2.0
// Tests that products of integers have the same bits whatever instructions multiply them, for as
// many rows as each has tiles for.
#include "kernels/cpu/matmul/panel_matmul.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/isa/pick_kernels.h"
#include "kernels/cpu/runtime/cpu_context.h"
#include "tests/kernels/grouped_weight.h"
#include "tests/kernels/packed_weight.h"

namespace continuo::testing {
namespace {

using kernels::cpu::CpuContext;
using kernels::cpu::KernelTable;
using kernels::cpu::PanelMatMul;
using kernels::cpu::PanelProduct;

constexpr int64_t kColumns = 50;  // the last panel is not full

// Expects that every table gives the same bits of x · w.
void ExpectTheSameBits(const kernels::Weight& w, const HostTensor& x,
                       const std::vector<int64_t>& splits, int num_threads,
                       const std::string& what) {
  const int64_t rows = x.tensor().rows();
  const std::vector<const KernelTable*> tables = kernels::cpu::AllKernels();
  HostTensor expected;
  for (const KernelTable* table : tables) {
    CpuContext context(*table, num_threads, {});
    HostTensor out = HostTensor::Poisoned(kernels::DType::kF32, rows, kColumns);
    const std::vector<PanelProduct> products = {{.out = out, .w = w, .x_row = 0}};
    PanelMatMul(context).Run(products, x, /*x_rows=*/nullptr, rows, splits);
    if (table == tables.front()) expected = out;
    ASSERT_TRUE(out.SameBits(expected)) << what << ", " << rows << " rows, " << table->name << ", "
                                        << splits.size() - 1 << " splits";
  }
}

class PanelMatMulTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Formats, PanelMatMulTest,
                         ::testing::Range(0, static_cast<int>(GroupCases().size())));

TEST_P(PanelMatMulTest, EveryTableGivesTheSameBits) {
  const GroupCase c = GroupCases()[static_cast<size_t>(GetParam())];
  Random random(85);
  const std::unique_ptr<kernels::Device> scalar = MakeCpu("scalar");
  // One split has several chunks of K, another is shorter than a chunk. Where scales share no
  // factor, the last unit may be shorter.
  const int64_t tail = c.groups.scales == kernels::GroupScales::kShared ? 0 : c.groups.size;
  for (const std::vector<int64_t>& splits :
       {std::vector<int64_t>{0, 9 * 256 + tail}, {0, 3 * 256, 5 * 256 + tail}}) {
    const StoredMatrix stored(c, kColumns, splits.back(), random);
    const GroupedWeight w(*scalar, stored, stored.Elements(), splits);
    for (const int64_t rows : {1, 5, 7, 8, 9, 13, 14, 15, 16, 17, 31, 32, 33, 50}) {
      const HostTensor x = HostTensor::Of(kernels::DType::kF32, rows, splits.back(), random);
      ExpectTheSameBits(w.weight(), x, splits, /*num_threads=*/1, c.name);
    }
  }
}

// Groups that a split cuts short, and splits without elements, beside rows for whole tiles.
TEST(PanelMatMulSplitsTest, EveryTableGivesTheSameBits) {
  Random random(86);
  const std::unique_ptr<kernels::Device> scalar = MakeCpu("scalar");
  const std::vector<int64_t> splits = {0, 13, 27, 27, 100, 141, 200, 201, 333};
  for (const kernels::WeightType type : {kernels::WeightType::kInt8, kernels::WeightType::kInt4}) {
    const HostTensor elements =
        HostTensor::Of(kernels::DType::kF32, kColumns, splits.back(), random);
    const PackedWeight w(*scalar, type, elements, splits);
    for (const kernels::DType x_type : {kernels::DType::kF32, kernels::DType::kBF16}) {
      for (const int64_t rows : {1, 8, 14, 16, 17, 33, 100}) {
        const HostTensor x = HostTensor::Of(x_type, rows, splits.back(), random);
        for (const int num_threads : {1, 3}) {
          ExpectTheSameBits(w.weight(), x, splits, num_threads, NameOf(type));
        }
      }
    }
  }
}

}  // namespace
}  // namespace continuo::testing
