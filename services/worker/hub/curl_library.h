// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <curl/curl.h>

#include "absl/status/statusor.h"

namespace continuo::hub {

// The functions of libcurl that are used. The library is opened by name when the first model is
// fetched, so that other workers neither load it nor the libraries that it needs.
struct CurlLibrary {
  decltype(&curl_global_init) global_init;
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  decltype(&curl_easy_reset) easy_reset;
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_perform) easy_perform;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_url) url;
  decltype(&curl_url_cleanup) url_cleanup;
  decltype(&curl_url_get) url_get;
  decltype(&curl_url_set) url_set;
  decltype(&curl_free) free;
};

// Opens libcurl.so.4 and initialises it, once. FailedPrecondition where there is none. Thread-safe.
absl::StatusOr<const CurlLibrary*> OpenCurl();

}  // namespace continuo::hub
