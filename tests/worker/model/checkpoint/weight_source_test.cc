// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weight_source.h"

#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/math/bfloat16.h"

namespace continuo::model {
namespace {

constexpr int64_t kHeads = 3, kHead = 32, kColumns = 5;

// The number of row r of head h, column c: a small integer, which every type holds, and which of
// each column some are ±127 / 4 of, so that a block of Q8_0 has a scale of 1 / 4.
float ValueAt(int64_t h, int64_t r, int64_t c) {
  if (r == (7 * h + c) % kHead) return 31.75f;
  return static_cast<float>((h * 5 + r * 3 + c * 11) % 61 - 30) / 4;
}

// A stored tensor whose heads are stored one after the other, each by columns.
class Turned {
 public:
  explicit Turned(const std::string& type) : name_("model.layers.0.self_attn.k_b_proj.weight") {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t c = 0; c < kColumns; ++c) AddColumn(type, h, c);
    }
    stored_.name = name_;
    stored_.dtype = type;
    stored_.shape = {kHeads * kHead, kColumns};
    stored_.bytes = bytes_;
    stored_.turned_head = kHead;
    spec_ = {.name = name_, .shape = stored_.shape, .rows = {0, kHeads * kHead}};
  }

  // Expects the numbers of a part, read in steps of `step` rows.
  void Expect(const WeightPart& part, int64_t step) {
    SCOPED_TRACE(::testing::Message()
                 << stored_.dtype << ", rows " << part.rows.begin << " to " << part.rows.end
                 << ", columns from " << part.columns.begin << ", in steps of " << step);
    auto device = kernels::MakeDevice({.num_threads = 2});
    ASSERT_TRUE(device.ok()) << device.status();
    const WeightSource source(stored_, spec_, part);
    EXPECT_FALSE(source.HasBytesOf(kernels::DType::kF32));
    const int64_t columns = part.columns.size();
    for (int64_t begin = 0; begin < part.rows.size(); begin += step) {
      const int64_t n = std::min(step, part.rows.size() - begin);
      std::vector<float> got(static_cast<size_t>(n * columns), -1000);
      std::vector<uint16_t> narrow(got.size());
      ASSERT_TRUE(source
                      .Read(begin, n, kernels::DType::kF32, reinterpret_cast<uint8_t*>(got.data()),
                            **device)
                      .ok());
      ASSERT_TRUE(source
                      .Read(begin, n, kernels::DType::kBF16,
                            reinterpret_cast<uint8_t*>(narrow.data()), **device)
                      .ok());
      for (int64_t i = 0; i < n; ++i) {
        const int64_t row = part.rows.begin + begin + i;
        for (int64_t c = 0; c < columns; ++c) {
          const auto at = static_cast<size_t>(i * columns + c);
          const float expected = ValueAt(row / kHead, row % kHead, part.columns.begin + c);
          ASSERT_EQ(got[at], expected) << row << ", " << c;
          ASSERT_EQ(kernels::FromBF16(narrow[at]), expected) << row << ", " << c;
        }
      }
    }
  }

 private:
  void AddColumn(const std::string& type, int64_t h, int64_t c) {
    if (type == "F32") {
      for (int64_t r = 0; r < kHead; ++r) Append(ValueAt(h, r, c));
    } else if (type == "BF16") {
      for (int64_t r = 0; r < kHead; ++r) Append(kernels::ToBF16(ValueAt(h, r, c)));
    } else {  // a block of Q8_0
      Append(kernels::ToF16(0.25f));
      for (int64_t r = 0; r < kHead; ++r) Append(static_cast<int8_t>(4 * ValueAt(h, r, c)));
    }
  }
  template <typename T>
  void Append(T value) {
    const auto* const from = reinterpret_cast<const uint8_t*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(value));
  }

  const std::string name_;
  std::vector<uint8_t> bytes_;
  StoredTensor stored_;
  WeightSpec spec_;
};

// Rows of whole heads, of parts of them, and over their borders, of all columns and of some.
TEST(WeightSourceTest, HeadsStoredByColumnsAreTurned) {
  for (const char* type : {"F32", "BF16", "Q8_0"}) {
    Turned turned(type);
    for (const Range columns : {Range{0, kColumns}, Range{2, 4}}) {
      for (const Range rows : {Range{0, kHeads * kHead}, Range{kHead, 2 * kHead}, Range{5, 6},
                               Range{kHead - 3, 2 * kHead + 7}}) {
        for (const int64_t step : {1, 16, 1000}) turned.Expect({rows, columns}, step);
      }
    }
  }
}

TEST(WeightSourceTest, TurnedHeadsThatOverflowFp16AreToldOf) {
  const std::vector<float> values = {1, 1e6f, 2, 3};  // one head of two rows, by columns
  StoredTensor stored = {.name = "k_b", .dtype = "F32", .shape = {2, 2}};
  stored.bytes = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
  stored.turned_head = 2;
  const WeightSpec spec = {.name = "k_b", .shape = {2, 2}, .rows = {0, 2}};
  const WeightPart part = {{0, 2}, {0, 2}};
  auto device = kernels::MakeDevice({});
  ASSERT_TRUE(device.ok()) << device.status();
  std::vector<uint16_t> out(4);
  const absl::Status status =
      WeightSource(stored, spec, part)
          .Read(0, 2, kernels::DType::kF16, reinterpret_cast<uint8_t*>(out.data()), **device);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("k_b"));
}

}  // namespace
}  // namespace continuo::model
