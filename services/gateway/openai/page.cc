// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/page.h"

#include <openssl/sha.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/openai/page_html.h"

namespace continuo::gateway::openai {
namespace {

// The hashes, 'sha256-…', of the contents of all elements of that name.
std::string HashesOf(std::string_view html, const std::string& element) {
  const std::string begin = absl::StrCat("<", element, ">"), end = absl::StrCat("</", element, ">");
  std::string hashes;
  for (size_t at = 0; (at = html.find(begin, at)) != std::string_view::npos;) {
    at += begin.size();
    const std::string_view content = html.substr(at, html.find(end, at) - at);
    std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
    SHA256(reinterpret_cast<const unsigned char*>(content.data()), content.size(), digest.data());
    absl::StrAppend(&hashes, " 'sha256-",
                    absl::Base64Escape(std::string(digest.begin(), digest.end())), "'");
  }
  return hashes;
}

}  // namespace

std::string PolicyOf(std::string_view html) {
  return absl::StrCat("default-src 'none'; script-src", HashesOf(html, "script"), "; style-src",
                      HashesOf(html, "style"),
                      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

HttpResponse PageResponse() {
  static const std::string* const policy = new std::string(PolicyOf(kPageHtml));
  return {.content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", *policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}},
          .body = std::string(kPageHtml)};
}

}  // namespace continuo::gateway::openai
