// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/http_transfer.h"

#include <algorithm>
#include <memory>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"
#include "services/worker/hub/curl_library.h"

namespace continuo::hub {
namespace {

constexpr size_t kMaxHeaderBytes = 64 << 10;
constexpr int64_t kMaxErrorBytes = 1 << 20;  // of an answer that is no success

// The parts of an address that decide where a token may go.
struct Origin {
  std::string scheme, host, port;
  friend bool operator==(const Origin&, const Origin&) = default;
};

std::string UrlPart(const CurlLibrary& lib, CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (lib.url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return "";
  std::string result(text);
  lib.free(text);
  return result;
}

// Parses `text`, which may be relative to what `url` has.
absl::StatusOr<Origin> SetUrl(const CurlLibrary& lib, CURLU* url, const std::string& text) {
  if (lib.url_set(url, CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text.substr(0, 200), "\" is no address"));
  }
  Origin origin = {.scheme = UrlPart(lib, url, CURLUPART_SCHEME),
                   .host = absl::AsciiStrToLower(UrlPart(lib, url, CURLUPART_HOST)),
                   .port = UrlPart(lib, url, CURLUPART_PORT)};
  if (origin.scheme != "https" && origin.scheme != "http") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text.substr(0, 200), "\" is no address of http or https"));
  }
  return origin;
}

// The state of one answer while it comes.
struct Receiver {
  const HttpRequest& request;
  const std::function<absl::Status(const HttpAnswer&)>& on_head;
  const std::function<absl::Status(std::string_view)>& on_body;
  const CurlLibrary& lib;
  CURL* curl;
  HttpAnswer answer;
  size_t header_bytes = 0;
  int64_t body_bytes = 0;
  bool has_begun = false;
  absl::Status failure;

  bool is_good() const { return answer.code >= 200 && answer.code < 300; }

  absl::Status Begin() {
    if (has_begun) return absl::OkStatus();
    has_begun = true;
    long code = 0;
    lib.easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
    answer.code = static_cast<int>(code);
    return is_good() ? on_head(answer) : absl::OkStatus();
  }

  absl::Status Take(std::string_view bytes) {
    RETURN_IF_ERROR(Begin());
    body_bytes += static_cast<int64_t>(bytes.size());
    const int64_t most = is_good() ? request.max_bytes : kMaxErrorBytes;
    if (body_bytes > most) {
      return absl::InvalidArgumentError(absl::StrCat("the answer has more than ", most, " bytes"));
    }
    return is_good() ? on_body(bytes) : absl::OkStatus();
  }
};

size_t OnHeader(char* data, size_t, size_t size, void* context) {
  Receiver& receiver = *static_cast<Receiver*>(context);
  std::string_view line(data, size);
  // A new status line begins the headers of the next answer, such as one behind a proxy's.
  if (line.starts_with("HTTP/")) {
    receiver.answer.headers.clear();
    receiver.header_bytes = 0;
  }
  receiver.header_bytes += size;
  if (receiver.header_bytes > kMaxHeaderBytes) {
    receiver.failure = absl::InvalidArgumentError("the answer has more than 64 KiB of headers");
    return 0;
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos) {
    std::string name(line.substr(0, colon)), value(line.substr(colon + 1));
    absl::AsciiStrToLower(&name);
    absl::StripAsciiWhitespace(&value);
    receiver.answer.headers[name] = std::move(value);
  }
  return size;
}

size_t OnBody(char* data, size_t, size_t size, void* context) {
  Receiver& receiver = *static_cast<Receiver*>(context);
  receiver.failure = receiver.Take({data, size});
  return receiver.failure.ok() ? size : 0;
}

// One answer without following redirects.
absl::StatusOr<HttpAnswer> FetchOnce(const CurlLibrary& lib, CURL* curl, CURLU* url,
                                     const Origin& origin, bool with_token,
                                     const HttpRequest& request, const HttpLimits& limits,
                                     Receiver& receiver) {
  lib.easy_reset(curl);
  char error[CURL_ERROR_SIZE] = "";
  curl_slist* headers = nullptr;
  const absl::Cleanup free_headers = [&lib, &headers] { lib.slist_free_all(headers); };
  lib.easy_setopt(curl, CURLOPT_CURLU, url);
  lib.easy_setopt(curl, CURLOPT_ERRORBUFFER, error);
  lib.easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  if (lib.easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK) {
    return absl::FailedPreconditionError("libcurl is older than 7.85");
  }
  if (!request.ca_file.empty()) lib.easy_setopt(curl, CURLOPT_CAINFO, request.ca_file.c_str());
  lib.easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  lib.easy_setopt(curl, CURLOPT_USERAGENT, "continuo-worker");
  lib.easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS,
                  static_cast<long>(absl::ToInt64Milliseconds(limits.connect)));
  lib.easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  lib.easy_setopt(curl, CURLOPT_LOW_SPEED_TIME,
                  std::max(1L, static_cast<long>(absl::ToInt64Seconds(limits.silence))));
  lib.easy_setopt(curl, CURLOPT_HEADERFUNCTION, OnHeader);
  lib.easy_setopt(curl, CURLOPT_HEADERDATA, &receiver);
  lib.easy_setopt(curl, CURLOPT_WRITEFUNCTION, OnBody);
  lib.easy_setopt(curl, CURLOPT_WRITEDATA, &receiver);
  if (with_token && !request.token.empty()) {
    headers = lib.slist_append(headers, ("Authorization: Bearer " + request.token).c_str());
  }
  const std::string range = absl::StrCat(request.first_byte, "-");
  if (request.first_byte > 0) lib.easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  lib.easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
  const CURLcode code = lib.easy_perform(curl);
  if (code == CURLE_OK) receiver.failure = receiver.Begin();
  receiver.answer.body = receiver.failure;
  if (!receiver.failure.ok() && !receiver.has_begun) return receiver.failure;
  if (code == CURLE_OK || !receiver.failure.ok()) return receiver.answer;
  const absl::Status lost =
      absl::UnavailableError(absl::StrCat(origin.scheme, "://", origin.host, ":", origin.port, ": ",
                                          error[0] != '\0' ? error : lib.easy_strerror(code)));
  if (!receiver.has_begun) return lost;
  receiver.answer.body = lost;
  return receiver.answer;
}

bool IsRedirect(int code) {
  return code == 301 || code == 302 || code == 303 || code == 307 || code == 308;
}

}  // namespace

absl::StatusOr<HttpAnswer> Fetch(const HttpRequest& request, const HttpLimits& limits,
                                 const std::function<absl::Status(const HttpAnswer&)>& on_head,
                                 const std::function<absl::Status(std::string_view)>& on_body) {
  ASSIGN_OR_RETURN(const CurlLibrary* const opened, OpenCurl());
  const CurlLibrary& lib = *opened;
  if (request.token.find_first_of("\r\n") != std::string::npos) {
    return absl::InvalidArgumentError("the hub's token has a line break");
  }
  const std::unique_ptr<CURL, decltype(lib.easy_cleanup)> curl(lib.easy_init(), lib.easy_cleanup);
  const std::unique_ptr<CURLU, decltype(lib.url_cleanup)> url(lib.url(), lib.url_cleanup);
  ASSIGN_OR_RETURN(const Origin first, SetUrl(lib, url.get(), request.url));
  Origin origin = first;
  for (int redirects = 0;; ++redirects) {
    Receiver receiver{
        .request = request, .on_head = on_head, .on_body = on_body, .lib = lib, .curl = curl.get()};
    ASSIGN_OR_RETURN(HttpAnswer answer, FetchOnce(lib, curl.get(), url.get(), origin,
                                                  origin == first, request, limits, receiver));
    if (!IsRedirect(answer.code)) return answer;
    if (redirects == limits.max_redirects) {
      return absl::InvalidArgumentError(
          absl::StrCat(first.host, ": more than ", limits.max_redirects, " redirects"));
    }
    const bool was_safe = origin.scheme == "https";
    ASSIGN_OR_RETURN(origin, SetUrl(lib, url.get(), answer.headers["location"]));
    if (was_safe && origin.scheme != "https") {
      return absl::InvalidArgumentError(
          absl::StrCat(first.host, ": redirects from https to http, to ", origin.host));
    }
  }
}

}  // namespace continuo::hub
