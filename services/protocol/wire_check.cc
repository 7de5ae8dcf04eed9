// SPDX-License-Identifier: Apache-2.0
#include "services/protocol/wire_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "services/base/utf8.h"
#include "services/protocol/error.h"
#include "services/protocol/limits.h"

namespace continuo::protocol {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxDepth = 100;  // protobuf's own limit

// The path of the first text below `path` that is not UTF-8; "" if there is none.
std::string FindBadText(std::string_view bytes, const Descriptor& type, const std::string& path,
                        int depth) {
  CodedInputStream input(reinterpret_cast<const uint8_t*>(bytes.data()),
                         static_cast<int>(bytes.size()));
  while (const uint32_t tag = input.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const bool delimited =
        WireFormatLite::GetTagWireType(tag) == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
    if (field == nullptr || !delimited) {
      if (!WireFormatLite::SkipField(&input, tag)) return "";
      continue;
    }
    uint32_t size = 0;
    if (!input.ReadVarint32(&size)) return "";
    const auto begin = static_cast<size_t>(input.CurrentPosition());
    if (size > bytes.size() - begin || !input.Skip(static_cast<int>(size))) return "";
    const std::string_view content = bytes.substr(begin, size);
    const std::string name = absl::StrCat(path, path.empty() ? "" : ".", field->name());
    if (field->type() == FieldDescriptor::TYPE_STRING && !IsUtf8(content)) return name;
    if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      std::string found = FindBadText(content, *field->message_type(), name, depth + 1);
      if (!found.empty()) return found;
    }
  }
  return "";
}

bool IsText(const FieldDescriptor& field) {
  return field.type() == FieldDescriptor::TYPE_STRING ||
         field.type() == FieldDescriptor::TYPE_BYTES;
}

// True if a parser takes the field in this form; otherwise it keeps it as an unknown one.
bool IsKnown(const FieldDescriptor* field, WireFormatLite::WireType wire_type) {
  if (field == nullptr) return false;
  const auto type = static_cast<WireFormatLite::FieldType>(field->type());
  return wire_type == WireFormatLite::WireTypeForFieldType(type) ||
         (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED && field->is_packable());
}

// The number of varints that end in these bytes: the last byte of each is below 0x80.
int64_t NumVarints(std::string_view bytes) {
  int64_t count = 0;
  while (bytes.size() >= sizeof(uint64_t)) {
    uint64_t eight;
    std::memcpy(&eight, bytes.data(), sizeof(eight));
    count += std::popcount(~eight & 0x8080808080808080);
    bytes.remove_prefix(sizeof(eight));
  }
  return count + std::ranges::count_if(bytes, [](char c) { return (c & 0x80) == 0; });
}

// Counts the numbers of a packed list; false at the end of the bytes.
bool CountPacked(CodedInputStream& input, const FieldDescriptor& field, WireCounts* counts) {
  int size = 0;
  if (!input.ReadVarintSizeAsInt(&size)) return false;
  switch (
      WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()))) {
    case WireFormatLite::WIRETYPE_FIXED32:
      counts->numbers += size / 4;
      return input.Skip(size);
    case WireFormatLite::WIRETYPE_FIXED64:
      counts->numbers += size / 8;
      return input.Skip(size);
    default:
      break;
  }
  while (size > 0) {
    const void* data = nullptr;
    int length = 0;
    if (!input.GetDirectBufferPointer(&data, &length)) return false;
    length = std::min(length, size);
    counts->numbers += NumVarints({static_cast<const char*>(data), static_cast<size_t>(length)});
    if (!input.Skip(length)) return false;
    size -= length;
  }
  return true;
}

// Adds to *counts. Returns false at the end of the bytes, whether they are well-formed or not, and
// if there are more than kMaxValues values. A message ends where `input` has its limit.
bool CountInMessage(CodedInputStream& input, const Descriptor& type, int depth,
                    WireCounts* counts) {
  int num_groups = 0;  // around the field: inside a group every field is unknown
  while (const uint32_t tag = input.ReadTag()) {
    const FieldDescriptor* field = type.FindFieldByNumber(WireFormatLite::GetTagFieldNumber(tag));
    const WireFormatLite::WireType wire_type = WireFormatLite::GetTagWireType(tag);
    const bool is_known = num_groups == 0 && IsKnown(field, wire_type);
    const bool is_message = is_known && field->type() == FieldDescriptor::TYPE_MESSAGE;
    const bool is_value = !is_known || is_message || IsText(*field);
    if (is_value && ++counts->values > kMaxValues) return false;
    if (!is_value && field->is_repeated()) {
      if (wire_type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED) {
        if (!CountPacked(input, *field, counts)) return false;
        continue;
      }
      ++counts->numbers;
    }
    // The fields of a group count one by one.
    if (wire_type == WireFormatLite::WIRETYPE_START_GROUP) {
      ++num_groups;
      continue;
    }
    if (wire_type == WireFormatLite::WIRETYPE_END_GROUP) {
      if (--num_groups < 0) return false;
      continue;
    }
    if (!is_message || depth >= kMaxDepth) {
      if (!WireFormatLite::SkipField(&input, tag)) return false;
      continue;
    }
    int size = 0;
    if (!input.ReadVarintSizeAsInt(&size)) return false;
    const CodedInputStream::Limit outer = input.PushLimit(size);
    if (!CountInMessage(input, *field->message_type(), depth + 1, counts)) return false;
    input.PopLimit(outer);
  }
  return true;
}

}  // namespace

WireCounts CountOnWire(google::protobuf::io::ZeroCopyInputStream* bytes, const Descriptor& type) {
  CodedInputStream input(bytes);
  WireCounts counts;
  CountInMessage(input, type, 0, &counts);
  return counts;
}

int64_t MemoryOf(int64_t num_bytes, const WireCounts& counts) {
  return num_bytes + counts.values * kBytesPerValue + counts.numbers * kBytesPerNumber;
}

absl::Status CheckNumValues(int64_t num_values) {
  if (num_values <= kMaxValues) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the request has more than ", kMaxValues, " messages and texts"));
}

absl::Status ExplainParseFailure(std::string_view bytes, const Descriptor& type) {
  const std::string field = FindBadText(bytes, type, "", 0);
  if (!field.empty()) return FieldError(field, "is not UTF-8");
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no well-formed ", type.full_name()));
}

}  // namespace continuo::protocol
