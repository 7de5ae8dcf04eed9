// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/curl_library.h"

#include <dlfcn.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace continuo::hub {
namespace {

constexpr char kLibrary[] = "libcurl.so.4";

absl::Status Missing(const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("models of a hub are fetched by ", kLibrary,
                                                    " (Debian's package libcurl4), ", what));
}

// Sets `function` to the library's function `name`.
template <typename Function>
bool Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

absl::StatusOr<CurlLibrary> Open() {
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Missing("which is not there");
  CurlLibrary curl;
  const bool is_whole =
      Find(library, "curl_global_init", curl.global_init) &&
      Find(library, "curl_easy_init", curl.easy_init) &&
      Find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
      Find(library, "curl_easy_reset", curl.easy_reset) &&
      Find(library, "curl_easy_setopt", curl.easy_setopt) &&
      Find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
      Find(library, "curl_easy_perform", curl.easy_perform) &&
      Find(library, "curl_easy_strerror", curl.easy_strerror) &&
      Find(library, "curl_slist_append", curl.slist_append) &&
      Find(library, "curl_slist_free_all", curl.slist_free_all) &&
      Find(library, "curl_url", curl.url) && Find(library, "curl_url_cleanup", curl.url_cleanup) &&
      Find(library, "curl_url_get", curl.url_get) && Find(library, "curl_url_set", curl.url_set) &&
      Find(library, "curl_free", curl.free);
  if (!is_whole || curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    return Missing("and the one that is there is too old");
  }
  return curl;
}

}  // namespace

absl::StatusOr<const CurlLibrary*> OpenCurl() {
  static const absl::StatusOr<CurlLibrary> library = Open();
  if (!library.ok()) return library.status();
  return &*library;
}

}  // namespace continuo::hub
