// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace continuo::text {

struct ZipEntry {
  std::string name;  // without folders
  std::string bytes;
};

// Returns a zip archive of the entries in their order, compressed. Equal entries give equal bytes:
// no time and no owner is part of it. InvalidArgument where an entry has 4 GiB or more.
absl::StatusOr<std::string> MakeZip(std::span<const ZipEntry> entries);

}  // namespace continuo::text
