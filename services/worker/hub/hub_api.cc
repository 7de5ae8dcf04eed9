// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_api.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/status_macros.h"
#include "services/worker/hub/hub_json.h"

namespace continuo::hub {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxListing = 32 << 20;
constexpr size_t kMaxFiles = 100000;
constexpr int64_t kMaxFileBytes = int64_t{1} << 44;
constexpr size_t kBlobDigits = 40, kSha256Digits = 64;

// Letters, digits and "-_.~/" as they are, all else as %XX.
std::string Escaped(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte < 0x80 && std::isalnum(byte)) ||
                          std::string_view("-_.~/").find(c) != std::string_view::npos;
    if (is_plain) {
      out.push_back(c);
    } else {
      absl::StrAppendFormat(&out, "%%%02X", byte);
    }
  }
  return out;
}

// A line of an answer's header, as far as it is printable ASCII.
std::string Shown(const HttpAnswer& answer, const std::string& name) {
  const auto found = answer.headers.find(name);
  if (found == answer.headers.end()) return "";
  std::string text = found->second.substr(0, 300);
  std::erase_if(text, [](char c) { return c < 0x20 || c > 0x7e; });
  return text;
}

std::string TextOf(const Json& object, const char* field) {
  const auto found = object.find(field);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// Fills in size and digest. False where the hub tells no digest.
absl::StatusOr<bool> ReadDigest(const Json& sibling, HubFile& file) {
  const auto lfs = sibling.find("lfs");
  const bool is_large = lfs != sibling.end() && lfs->is_object();
  const Json& from = is_large ? *lfs : sibling;
  file.is_sha256 = is_large;
  file.digest = is_large ? TextOf(from, "sha256") : TextOf(from, "blobId");
  if (is_large && file.digest.empty()) file.digest = TextOf(from, "oid");
  if (file.digest.empty()) return false;
  const auto size = from.find("size");
  const bool has_size =
      size != from.end() && size->is_number_integer() && *size >= 0 && *size <= kMaxFileBytes;
  if (!IsHexDigits(file.digest, is_large ? kSha256Digits : kBlobDigits) || !has_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("the hub's listing has no size and digest of ", file.path));
  }
  file.size = size->get<int64_t>();
  return true;
}

}  // namespace

absl::StatusOr<HubListing> ParseListing(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, ParseHubJson("the hub's listing", text));
  HubListing listing;
  if (json.is_object()) listing.commit = TextOf(json, "sha");
  if (!IsHexDigits(listing.commit, kCommitDigits)) {
    return absl::InvalidArgumentError("the hub's answer is no listing of a model's files");
  }
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array() || siblings->size() > kMaxFiles) {
    return absl::InvalidArgumentError("the hub's answer has no list of files");
  }
  for (const Json& sibling : *siblings) {
    if (!sibling.is_object()) continue;
    HubFile file = {.path = TextOf(sibling, "rfilename")};
    if (!IsPlainPath(file.path)) continue;
    ASSIGN_OR_RETURN(const bool has_digest, ReadDigest(sibling, file));
    if (has_digest) listing.files.push_back(std::move(file));
  }
  std::ranges::sort(listing.files, {}, &HubFile::path);
  const auto twice = std::ranges::adjacent_find(listing.files, {}, &HubFile::path);
  if (twice != listing.files.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the hub lists ", twice->path, " twice"));
  }
  return listing;
}

absl::Status ErrorOf(const HttpAnswer& answer, const HubSettings& settings,
                     const HubReference& reference, std::string_view what) {
  const std::string name = absl::StrCat("hf://", reference.repository);
  const std::string code = Shown(answer, "x-error-code"), said = Shown(answer, "x-error-message");
  const std::string told = absl::StrCat(settings.endpoint, " answers ", answer.code, " for ",
                                        std::string(what), said.empty() ? "" : ": ", said);
  const std::string page = absl::StrCat(settings.endpoint, "/", reference.repository);
  if (code == "GatedRepo") {
    return absl::PermissionDeniedError(absl::StrCat(
        name, ": access needs the consent of its owners; ask for it at ", page,
        settings.token.empty() ? " and set HF_TOKEN" : ", with the account of HF_TOKEN", " (", told,
        ")"));
  }
  if (answer.code == 403) {
    return absl::PermissionDeniedError(absl::StrCat(
        name, ": the hub refuses access",
        settings.token.empty() ? ", and HF_TOKEN is not set" : " to the account of HF_TOKEN", " (",
        told, ")"));
  }
  if (code == "RevisionNotFound") {
    return absl::NotFoundError(
        absl::StrCat(name, ": has no revision ", reference.revision, " (", told, ")"));
  }
  if (answer.code == 401) {
    return absl::UnauthenticatedError(absl::StrCat(
        name,
        settings.token.empty()
            ? ": there is no such model, or it is private: then set HF_TOKEN"
            : ": there is no such model for the account of HF_TOKEN, or the token is wrong",
        " (", told, ")"));
  }
  if (answer.code == 404) {
    return absl::NotFoundError(
        absl::StrCat(name, ": there is no such model or revision (", told, ")"));
  }
  // These pass; what else is wrong with a request stays wrong.
  const bool passes = answer.code >= 500 || answer.code == 408 || answer.code == 429;
  return absl::Status(passes ? absl::StatusCode::kUnavailable : absl::StatusCode::kInvalidArgument,
                      absl::StrCat(name, ": ", told));
}

absl::StatusOr<HubListing> ListFiles(const HubSettings& settings, const HubReference& reference,
                                     const HttpLimits& limits) {
  std::string body;
  const HttpRequest request = {
      .url = absl::StrCat(settings.endpoint, "/api/models/", Escaped(reference.repository),
                          "/revision/", Escaped(reference.revision), "?blobs=true"),
      .token = settings.token,
      .ca_file = settings.ca_file,
      .max_bytes = kMaxListing};
  ASSIGN_OR_RETURN(const HttpAnswer answer,
                   Fetch(
                       request, limits, [](const HttpAnswer&) { return absl::OkStatus(); },
                       [&body](std::string_view bytes) {
                         body.append(bytes);
                         return absl::OkStatus();
                       }));
  if (answer.code != 200) return ErrorOf(answer, settings, reference, "its list of files");
  RETURN_IF_ERROR(answer.body);
  return ParseListing(body);
}

std::string FileUrl(const HubSettings& settings, const std::string& repository,
                    const std::string& commit, std::string_view path) {
  return absl::StrCat(settings.endpoint, "/", Escaped(repository), "/resolve/", commit, "/",
                      Escaped(path));
}

}  // namespace continuo::hub
