// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/checkpoint/weight_source.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "services/base/check.h"

namespace continuo::model {

WeightPart PartOf(const WeightSpec& spec, const Shard& shard, const ModelConfig& config) {
  WeightPart part;
  part.rows = {0, spec.rows.size()};
  part.columns = {0, spec.shape.size() == 2 ? spec.shape[1] : 1};
  if (spec.column >= 0) part.columns = {spec.column, spec.column + 1};
  const auto times = [](Range range, int64_t n) { return Range{range.begin * n, range.end * n}; };
  const auto size = [&spec](int64_t own) { return spec.of_head != 0 ? spec.of_head : own; };
  switch (spec.cut) {
    case Cut::kWhole:
      break;
    case Cut::kHeadRows:
      part.rows = times(shard.heads, size(config.head_dim));
      break;
    case Cut::kKvHeadRows:
      part.rows =
          times(spec.is_other ? shard.other_kv_heads : shard.kv_heads, size(config.head_dim));
      break;
    case Cut::kInnerRows:
      part.rows = spec.is_other ? shard.wide_inner : shard.inner;
      break;
    case Cut::kVocabRows:
      part.rows = shard.vocab;
      break;
    case Cut::kHeadColumns:
      part.columns = times(shard.heads, size(config.head_dim));
      break;
    case Cut::kInnerColumns:
      part.columns = spec.is_other ? shard.wide_inner : shard.inner;
      break;
    case Cut::kExpertRows:
      part.rows = shard.expert_inner;
      break;
    case Cut::kExpertColumns:
      part.columns = shard.expert_inner;
      break;
    case Cut::kSharedRows:
      part.rows = shard.shared_inner;
      break;
    case Cut::kSharedColumns:
      part.columns = shard.shared_inner;
      break;
    case Cut::kStateHeadRows:
      part.rows = times(shard.state_heads, size(config.states.value_dim));
      break;
    case Cut::kStateKeyRows:
      part.rows = times(shard.state_key_heads, size(config.states.key_dim));
      break;
    case Cut::kStateHeadColumns:
      part.columns = times(shard.state_heads, size(config.states.value_dim));
      break;
  }
  part.rows = {part.rows.begin + spec.rows.begin, part.rows.end + spec.rows.begin};
  return part;
}

std::vector<int64_t> SplitsOf(const WeightSpec& spec, const Shard& shard, const WeightPart& part) {
  if (spec.cut == Cut::kHeadColumns) return shard.head_splits_of(spec.is_other);
  if (spec.cut == Cut::kInnerColumns) return shard.inner_splits_of(spec.is_other);
  if (spec.cut == Cut::kExpertColumns) return shard.expert_splits;
  if (spec.cut == Cut::kSharedColumns) return shard.shared_splits;
  if (spec.cut == Cut::kStateHeadColumns) return shard.state_splits;
  return {0, part.columns.size()};
}

WeightSource::WeightSource(const StoredTensor& stored, const WeightSpec& spec,
                           const WeightPart& part)
    : stored_(stored),
      type_(FindStoredType(stored.dtype)),
      name_(spec.name),
      order_(spec.order),
      part_(part),
      columns_(spec.shape.size() > 1 ? spec.shape.back() : 1) {}

int64_t WeightSource::StoredRow(int64_t row) const {
  int64_t stored_row = order_.StoredRow(part_.rows.begin + row);
  if (const int64_t head = stored_.interleaved_head; head != 0) {
    const int64_t in_head = stored_row % head, half = head / 2;
    stored_row += in_head % half * 2 + in_head / half - in_head;
  }
  if (!stored_.tiled.are_columns) stored_row = stored_.tiled.Stored(stored_row);
  return stored_.row_begin + stored_row * stored_.row_step;
}

bool WeightSource::RowsAreInOrder() const {
  return order_.is_plain() && stored_.interleaved_head == 0 && stored_.tiled.groups == 0 &&
         stored_.turned_head == 0 && stored_.row_step == 1;
}

const uint8_t* WeightSource::Row(int64_t row) const {
  return stored_.bytes.data() + StoredRow(row) * (columns_ / type_->block * type_->bytes);
}

bool WeightSource::HasBytesOf(kernels::DType dtype) const {
  return stored_.quantised == nullptr && type_->dtype == dtype &&
         part_.columns.size() == columns_ && stored_.column_stride == 0 && RowsAreInOrder();
}

absl::Status WeightSource::Read(int64_t begin, int64_t n, kernels::DType dtype, uint8_t* out,
                                kernels::Device& device) const {
  const int64_t row_bytes = part_.columns.size() * static_cast<int64_t>(kernels::SizeOf(dtype));
  constexpr int kTasks = 16;
  std::array<bool, kTasks> fits;
  device.ParallelFor(kTasks, [&](int task) {
    const int64_t first = n * task / kTasks, end = n * (task + 1) / kTasks;
    fits[static_cast<size_t>(task)] =
        Convert(begin + first, end - first, dtype, out + first * row_bytes, row_bytes);
  });
  if (std::ranges::count(fits, false) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "weights: tensor ", name_, " has elements that overflow fp16, whose largest is 65504"));
}

void WeightSource::ReadGroups(int64_t begin, int64_t n, const StoredGroups& groups, GroupRows& out,
                              kernels::Device& device) const {
  out.Resize(groups.groups, n, part_.columns.size());
  constexpr int kTasks = 16;
  device.ParallelFor(kTasks, [&](int task) {
    for (int64_t r = n * task / kTasks; r < n * (task + 1) / kTasks; ++r) {
      ReadGroupsOfRow(stored_, StoredRow(begin + r), part_.columns, groups, r, out);
    }
  });
}

bool WeightSource::Convert(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                           int64_t row_bytes) const {
  const int64_t first = part_.columns.begin, columns = part_.columns.size();
  if (stored_.column_stride != 0) return ConvertTurned(row, n, dtype, out, row_bytes);
  if (stored_.turned_head != 0) return ConvertTurnedHeads(row, n, dtype, out, row_bytes);
  if (stored_.tiled.are_columns) return ConvertTiled(row, n, dtype, out, row_bytes);
  if (stored_.quantised != nullptr && RowsAreInOrder()) {
    return ConvertQuantised(out, dtype, *stored_.quantised, StoredRow(row), n, first, columns);
  }
  bool fits = true;
  for (int64_t r = 0; r < n; ++r) {
    uint8_t* const to = out + r * row_bytes;
    fits &= stored_.quantised != nullptr ? ConvertQuantised(to, dtype, *stored_.quantised,
                                                            StoredRow(row + r), 1, first, columns)
                                         : type_->convert(to, dtype, Row(row + r), first, columns);
  }
  return fits;
}

bool WeightSource::ConvertTiled(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                                int64_t row_bytes) const {
  const gguf::TiledHeads& tiled = stored_.tiled;
  const Range columns = part_.columns;
  const auto element = static_cast<int64_t>(kernels::SizeOf(dtype));
  bool fits = true;
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = columns.begin; c < columns.end;) {
      const int64_t end = std::min(columns.end, (c / tiled.size + 1) * tiled.size);
      fits &= type_->convert(out + r * row_bytes + (c - columns.begin) * element, dtype,
                             Row(row + r), tiled.Stored(c), end - c);
      c = end;
    }
  }
  return fits;
}

bool WeightSource::ConvertTurnedHeads(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                                      int64_t row_bytes) const {
  CONTINUO_CHECK(order_.is_plain() && stored_.row_step == 1);
  const int64_t head = stored_.turned_head;
  const int64_t column_bytes = head / type_->block * type_->bytes;
  const auto element = static_cast<size_t>(kernels::SizeOf(dtype));
  std::vector<uint8_t> column(static_cast<size_t>(head) * element);
  bool fits = true;
  for (int64_t r = 0; r < n;) {
    const int64_t stored_row = StoredRow(row + r), first = stored_row % head;
    const int64_t count = std::min(n - r, head - first);  // rows of this head
    const uint8_t* const matrix =
        stored_.bytes.data() + stored_row / head * columns_ * column_bytes;
    for (int64_t c = part_.columns.begin; c < part_.columns.end; ++c) {
      fits &= type_->convert(column.data(), dtype, matrix + c * column_bytes, first, count);
      uint8_t* const to = out + r * row_bytes + (c - part_.columns.begin) * element;
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(to + i * row_bytes, column.data() + static_cast<size_t>(i) * element, element);
      }
    }
    r += count;
  }
  return fits;
}

bool WeightSource::ConvertTurned(int64_t row, int64_t n, kernels::DType dtype, uint8_t* out,
                                 int64_t row_bytes) const {
  const int64_t columns = part_.columns.size(), size = type_->bytes;
  std::vector<uint8_t> rows(static_cast<size_t>(n * columns * size));
  for (int64_t c = 0; c < columns; ++c) {
    const uint8_t* const column =
        stored_.bytes.data() + (part_.columns.begin + c) * stored_.column_stride * size;
    for (int64_t r = 0; r < n; ++r) {
      std::memcpy(rows.data() + (r * columns + c) * size, column + StoredRow(row + r) * size,
                  static_cast<size_t>(size));
    }
  }
  bool fits = true;
  for (int64_t r = 0; r < n; ++r) {
    fits &=
        type_->convert(out + r * row_bytes, dtype, rows.data() + r * columns * size, 0, columns);
  }
  return fits;
}

}  // namespace continuo::model
