// SPDX-License-Identifier: Apache-2.0
#include "services/common/wire_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "services/common/error.h"
#include "services/common/utf8.h"

namespace continuo {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kMaxDepth = 100;  // protobuf's own limit

bool IsText(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = Utf8CharacterLength(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

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
    if (field->type() == FieldDescriptor::TYPE_STRING && !IsText(content)) return name;
    if (field->type() == FieldDescriptor::TYPE_MESSAGE && depth < kMaxDepth) {
      std::string found = FindBadText(content, *field->message_type(), name, depth + 1);
      if (!found.empty()) return found;
    }
  }
  return "";
}

}  // namespace

absl::Status ExplainParseFailure(std::string_view bytes, const Descriptor& type) {
  const std::string field = FindBadText(bytes, type, "", 0);
  if (!field.empty()) return FieldError(field, "is not UTF-8");
  return absl::InvalidArgumentError(
      absl::StrCat("the request is no well-formed ", type.full_name()));
}

}  // namespace continuo
