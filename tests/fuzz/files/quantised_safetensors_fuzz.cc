// SPDX-License-Identifier: Apache-2.0
// A quantised checkpoint of any bytes gives matrices whose values lie inside its tensors, or an
// error. Two bytes tell how long config.json is; it follows, and then the safetensors file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "services/base/check.h"
#include "services/worker/model/checkpoint/safetensors.h"
#include "services/worker/model/description/json_file.h"
#include "services/worker/quantised/assemble.h"

namespace {

constexpr int64_t kTile = 64;

// Decodes the corners of a matrix, where reads are nearest to the ends of its parts.
void DecodeCorners(const continuo::quantised::Matrix& matrix) {
  float tile[kTile * kTile];
  const int64_t rows = std::min(kTile, matrix.rows), columns = std::min(kTile, matrix.columns);
  for (const int64_t row : {int64_t{0}, matrix.rows - rows}) {
    for (const int64_t column : {int64_t{0}, matrix.columns - columns}) {
      matrix.Decode(row, rows, column, columns, tile);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace continuo;
  if (size < 2) return 0;
  const size_t length = std::min<size_t>(data[0] | data[1] << 8, size - 2);
  const auto json = model::ParseJson("fuzz", {reinterpret_cast<const char*>(data) + 2, length});
  if (!json.ok()) return 0;
  const auto config = quantised::ReadQuantisationConfig(*json);
  if (!config.ok()) return 0;
  const auto tensors = model::ParseSafetensors("fuzz", {data + 2 + length, size - 2 - length});
  if (!tensors.ok()) return 0;
  absl::flat_hash_map<std::string, quantised::StoredPart> parts;
  for (const model::StoredTensor& tensor : *tensors) {
    parts.emplace(tensor.name,
                  quantised::StoredPart{tensor.name, tensor.dtype, tensor.shape, tensor.bytes});
  }
  const auto assembly = quantised::Assemble(*config, parts);
  if (!assembly.ok()) return 0;
  for (const auto& matrix : assembly->matrices) {
    CONTINUO_CHECK(matrix->rows >= 1 && matrix->columns >= 1 && !matrix->parts.empty());
    DecodeCorners(*matrix);
  }
  return 0;
}
