// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>
#include <string_view>

#include "tests/gateway/openai/server_fixture.h"

namespace continuo::gateway::openai {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class PageTest : public ServerTest {};

size_t CountOf(std::string_view what, std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string_view::npos; ++at) ++count;
  return count;
}

TEST_F(PageTest, ThePageIsServedToWhoeverHasNoKeyYet) {
  StartServer();
  service_.SetKey("0123456789abcdef");
  const HttpClient::Response page = Get("/?from=bookmark");
  EXPECT_EQ(page.result_int(), 200);
  EXPECT_EQ(page["Content-Type"], "text/html; charset=utf-8");
  EXPECT_THAT(page.body(), StartsWith("<!DOCTYPE html>"));
  EXPECT_THAT(page.body(), EndsWith("</html>\n"));
  EXPECT_EQ(page["X-Content-Type-Options"], "nosniff");
  EXPECT_EQ(page["Referrer-Policy"], "no-referrer");
  EXPECT_EQ(Get("/fleet").result_int(), 401);
  EXPECT_EQ(Post("/", "").result_int(), 405);
}

TEST_F(PageTest, ThePageMayOnlyDoItsOwn) {
  StartServer();
  const HttpClient::Response page = Get("/");
  const auto header = page["Content-Security-Policy"];
  const std::string policy(header.data(), header.size());
  EXPECT_EQ(policy, PolicyOf(page.body()));
  EXPECT_THAT(policy, StartsWith("default-src 'none'; script-src 'sha256-"));
  EXPECT_THAT(policy, HasSubstr("; connect-src 'self';"));
  EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
  // Nothing has to be loaded or allowed besides, and no text becomes markup or code.
  for (const char* foreign :
       {"src=\"", "rel=\"stylesheet\"", "style=\"", "@import", "url(", "innerHTML", "outerHTML",
        "insertAdjacentHTML", "document.write", "eval(", "new Function"}) {
    EXPECT_THAT(page.body(), Not(HasSubstr(foreign)));
  }
  EXPECT_FALSE(std::regex_search(page.body(), std::regex(R"(<[a-z]+ [^>]*\bon[a-z]+=")")));
}

TEST_F(PageTest, EveryFileIsWithinAnElementOfItsOwn) {
  StartServer();
  const std::string page = Get("/").body();
  // A file that had the end of its element in it would be cut there.
  EXPECT_GT(CountOf("<script>", page), 5);
  EXPECT_EQ(CountOf("<script>", page), CountOf("</script>", page));
  EXPECT_EQ(CountOf("<style>", page), CountOf("</style>", page));
  EXPECT_EQ(CountOf("<script>", page), CountOf("<script>// SPDX-License-Identifier", page));
  const std::string policy = PolicyOf(page);
  EXPECT_EQ(CountOf("'sha256-", policy), CountOf("<script>", page) + CountOf("<style>", page));
}

TEST(AssemblePageTest, FilesTakeThePlacesThatNameThem) {
  const PageFile files[] = {
      {"b.js", "let b = '<script src=\"a.js\">';"},
      {"page.html",
       "<html><link rel=\"stylesheet\" href=\"a.css\"><p><script src=\"a.js\"></script>\n<script "
       "src=\"b.js\"></script></html>"},
      {"a.js", "let a;"},
      {"a.css", "p { }"}};
  EXPECT_EQ(AssemblePage(files),
            "<html><style>p { }</style><p><script>let a;</script>\n<script>let b = '<script "
            "src=\"a.js\">';</script></html>");
}

TEST(AssemblePageDeathTest, AFileThatIsMissingEndsTheProgram) {
  const PageFile files[] = {{"page.html", "<script src=\"a.js\"></script>"}};
  EXPECT_DEATH(AssemblePage(files), "file != files.end");
}

TEST(PolicyTest, HashesAreThoseOfTheInlineParts) {
  // printf 'alert(1)' | openssl dgst -sha256 -binary | base64
  EXPECT_THAT(PolicyOf("<script>alert(1)</script><style>b{}</style>"),
              HasSubstr("script-src 'sha256-bhHHL3z2vDgxUt0W3dWQOrprscmda2Y5pLsLg4GF+pI='; "));
}

}  // namespace
}  // namespace continuo::gateway::openai
