// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/page/page.h"

#include <openssl/sha.h>

#include <algorithm>
#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/base/check.h"
#include "services/gateway/openai/page/page_files.h"

namespace continuo::gateway::openai {
namespace {

std::string_view TextOf(std::span<const PageFile> files, std::string_view name) {
  const auto file = std::ranges::find(files, name, &PageFile::name);
  CONTINUO_CHECK(file != files.end());
  return file->text;
}

// Replaces each `begin` NAME `end` by an element with the text of the file NAME.
void Inline(std::span<const PageFile> files, std::string_view begin, std::string_view end,
            const std::string& element, std::string* html) {
  for (size_t at = 0; (at = html->find(begin, at)) != std::string::npos;) {
    const size_t name = at + begin.size(), last = html->find(end, name);
    CONTINUO_CHECK(last != std::string::npos);
    const std::string content =
        absl::StrCat("<", element, ">",
                     std::string(TextOf(files, std::string_view(*html).substr(name, last - name))),
                     "</", element, ">");
    html->replace(at, last + end.size() - at, content);
    at += content.size();
  }
}

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
    at += content.size();
  }
  return hashes;
}

}  // namespace

std::string AssemblePage(std::span<const PageFile> files) {
  std::string html(TextOf(files, "page.html"));
  Inline(files, R"(<link rel="stylesheet" href=")", R"(">)", "style", &html);
  Inline(files, R"(<script src=")", R"("></script>)", "script", &html);
  return html;
}

std::string PolicyOf(std::string_view html) {
  return absl::StrCat("default-src 'none'; script-src", HashesOf(html, "script"), "; style-src",
                      HashesOf(html, "style"),
                      "; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
                      "frame-ancestors 'none'");
}

HttpResponse PageResponse() {
  static const std::string* const html = new std::string(AssemblePage(kPageFiles));
  static const std::string* const policy = new std::string(PolicyOf(*html));
  return {.content_type = "text/html; charset=utf-8",
          .headers = {{"Content-Security-Policy", *policy},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}},
          .body = *html};
}

}  // namespace continuo::gateway::openai
