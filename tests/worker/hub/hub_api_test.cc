// SPDX-License-Identifier: Apache-2.0
#include "services/worker/hub/hub_api.h"

#include <gmock/gmock.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace continuo::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kCommit(40, 'a'), kBlob(40, 'b'), kSha(64, 'c');

std::string Listing(const std::string& siblings) {
  return absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": [)", siblings, "]}");
}
std::string Small(const std::string& path) {
  return absl::StrCat(R"({"rfilename": ")", path, R"(", "size": 7, "blobId": ")", kBlob, "\"}");
}

TEST(HubApiTest, FilesHaveSizesAndDigests) {
  const auto listing = ParseListing(
      Listing(absl::StrCat(R"({"rfilename": "w/x.safetensors", "size": 9, "blobId": ")", kBlob,
                           R"(", "lfs": {"sha256": ")", kSha,
                           R"(", "size": 9, "pointerSize": 1}},)", Small("config.json"))));
  ASSERT_TRUE(listing.ok()) << listing.status();
  EXPECT_EQ(listing->commit, kCommit);
  ASSERT_EQ(listing->files.size(), 2);
  EXPECT_EQ(listing->files[0].path, "config.json");
  EXPECT_EQ(listing->files[0].digest, kBlob);
  EXPECT_FALSE(listing->files[0].is_sha256);
  EXPECT_EQ(listing->files[1].digest, kSha);
  EXPECT_EQ(listing->files[1].size, 9);
  EXPECT_TRUE(listing->files[1].is_sha256);
}

TEST(HubApiTest, HostilePathsAreLeftOut) {
  std::string siblings = Small("config.json");
  for (const char* path :
       {"../evil", "/etc/passwd", "a/../b", "a//b", "", ".", "a\\\\b", "a\\nb"}) {
    absl::StrAppend(&siblings, ",", Small(path));
  }
  absl::StrAppend(&siblings, R"(, 7, null, {}, {"rfilename": 3}, {"rfilename": "no_digest"})");
  const auto listing = ParseListing(Listing(siblings));
  ASSERT_TRUE(listing.ok()) << listing.status();
  ASSERT_EQ(listing->files.size(), 1);
  EXPECT_EQ(listing->files[0].path, "config.json");
}

TEST(HubApiTest, AnswersThatAreNoListingAreRefused) {
  for (const std::string& bad :
       {std::string(), std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"sha": "../../x", "siblings": []})"),
        absl::StrCat(R"({"sha": ")", kCommit, "\"}"),
        absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": {}})"),
        Listing(R"({"rfilename": "x", "size": 7, "blobId": "../x"})"),
        Listing(absl::StrCat(R"({"rfilename": "x", "size": -7, "blobId": ")", kBlob, "\"}")),
        Listing(absl::StrCat(R"({"rfilename": "x", "size": 7e40, "blobId": ")", kBlob, "\"}")),
        Listing(absl::StrCat(R"({"rfilename": "x", "blobId": ")", kBlob, "\"}")),
        Listing(R"({"rfilename": "x", "size": 7, "lfs": {"sha256": "short", "size": 7}})"),
        Listing(Small("x") + "," + Small("x"))}) {
    EXPECT_EQ(ParseListing(bad).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

// A value takes a few bytes of a listing and up to a hundred of memory.
TEST(HubApiTest, ListingsAreBoundedInDepthAndValues) {
  const auto listing = [](const std::string& member) {
    return ParseListing(absl::StrCat(R"({"sha": ")", kCommit, R"(", "siblings": [)",
                                     Small("config.json"), R"(], "spaces": )", member, "}"));
  };
  std::string many = "[0";
  for (int i = 0; i < (1 << 20); ++i) many += ",0";
  EXPECT_THAT(std::string(listing(many + "]").status().message()),
              HasSubstr("the hub's listing: line 1, column"));
  EXPECT_THAT(std::string(listing(many + "]").status().message()),
              HasSubstr("more than 1048576 values"));
  const std::string deep(100000, '[');
  EXPECT_THAT(std::string(listing(deep).status().message()),
              HasSubstr("nested deeper than 64 levels"));
  EXPECT_TRUE(listing("[[[[0,0]]]]").ok());
}

TEST(HubApiTest, AddressesAreEscaped) {
  EXPECT_EQ(FileUrl({.endpoint = "https://h"}, "o/n", kCommit, "a b/ü?.gguf"),
            absl::StrCat("https://h/o/n/resolve/", kCommit, "/a%20b/%C3%BC%3F.gguf"));
}

TEST(HubApiTest, ErrorsSayWhatToDo) {
  const HubSettings settings = {.endpoint = "https://h"},
                    with_token = {.endpoint = "https://h", .token = "secret"};
  const HubReference reference = {.repository = "o/n", .revision = "v2"};
  const auto error = [&](int code, const std::string& name, const HubSettings& with) {
    HttpAnswer answer = {.code = code};
    if (!name.empty()) answer.headers["x-error-code"] = name;
    answer.headers["x-error-message"] = "it says \x01so";
    const absl::Status status = ErrorOf(answer, with, reference, "x");
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("it says so"), Not(HasSubstr("secret"))));
    return absl::StrCat(absl::StatusCodeToString(status.code()), " ", status.message());
  };
  EXPECT_THAT(
      error(401, "GatedRepo", settings),
      AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("https://h/o/n"), HasSubstr("HF_TOKEN")));
  EXPECT_THAT(error(403, "GatedRepo", with_token), HasSubstr("account of HF_TOKEN"));
  EXPECT_THAT(error(403, "", with_token),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr("refuses access to the account"),
                    Not(HasSubstr("consent"))));
  EXPECT_THAT(error(403, "", settings), HasSubstr("HF_TOKEN is not set"));
  EXPECT_THAT(error(401, "RepoNotFound", settings), HasSubstr("private: then set HF_TOKEN"));
  EXPECT_THAT(error(401, "", with_token), HasSubstr("the token is wrong"));
  EXPECT_THAT(error(404, "RevisionNotFound", settings), HasSubstr("no revision v2"));
  EXPECT_THAT(error(404, "", settings), HasSubstr("NOT_FOUND"));
  for (const int code : {408, 429, 500, 503}) {
    EXPECT_THAT(error(code, "", settings), HasSubstr("UNAVAILABLE")) << code;
  }
  for (const int code : {400, 405, 410, 451}) {
    EXPECT_THAT(error(code, "", settings), HasSubstr("INVALID_ARGUMENT")) << code;
  }
}

}  // namespace
}  // namespace continuo::hub
