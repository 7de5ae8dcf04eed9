// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include <google/protobuf/descriptor.h>

#include "absl/status/status.h"

namespace continuo {

// Why bytes that are no message of this type are none: the field whose text is not UTF-8, or that
// the bytes themselves are malformed. Always INVALID_ARGUMENT. Protobuf only says that it failed.
absl::Status ExplainParseFailure(std::string_view bytes, const google::protobuf::Descriptor& type);

}  // namespace continuo
