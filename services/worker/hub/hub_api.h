// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "services/worker/hub/http_transfer.h"
#include "services/worker/hub/hub_reference.h"
#include "services/worker/hub/hub_settings.h"

namespace continuo::hub {

// A file of a repository, as the hub tells it.
struct HubFile {
  std::string path;    // plain, from the repository's root
  int64_t size = 0;    // bytes
  std::string digest;  // its name among the blobs of a cache
  // True: SHA-256 of the contents (files in large file storage). False: git's id of a blob, SHA-1
  // over "blob SIZE\0" and the contents.
  bool is_sha256 = false;
};

// A commit of a repository.
struct HubListing {
  std::string commit;  // 40 digits
  std::vector<HubFile> files;
};

// Parses what a hub answers at /api/models/REPOSITORY/revision/REVISION?blobs=true. The answer may
// say anything: InvalidArgument where it is no listing, a digest or a size cannot be one, or there
// are more than 100,000 files or a million values. Files whose path is not plain, or that have no
// digest, are left out.
absl::StatusOr<HubListing> ParseListing(std::string_view json);

// Asks the hub. NotFound, PermissionDenied and Unauthenticated say what the hub says of the
// repository and what to do; Unavailable where it is not reached, or has an error of its own.
absl::StatusOr<HubListing> ListFiles(const HubSettings& settings, const HubReference& reference,
                                     const HttpLimits& limits);

// The address of a file.
std::string FileUrl(const HubSettings& settings, const std::string& repository,
                    const std::string& commit, std::string_view path);

// Returns the error of an answer that is no success: `what` is a file or a repository. Unavailable
// where the same request may succeed later: 5xx, 408 and 429.
absl::Status ErrorOf(const HttpAnswer& answer, const HubSettings& settings,
                     const HubReference& reference, std::string_view what);

}  // namespace continuo::hub
