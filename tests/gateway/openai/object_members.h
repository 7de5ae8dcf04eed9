// SPDX-License-Identifier: Apache-2.0
#pragma once

// Compares the tables of a route's members (ObjectMembers) with what its parser does, and with
// docs/http.md.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "services/gateway/openai/json/members.h"
#include "services/protocol/error.h"
#include "tests/testing/shared_data.h"

namespace continuo::gateway::openai {

// A body that is in order, and where in it an object of one kind is.
struct ObjectPlace {
  const ObjectMembers* object;
  std::string body;
  std::string pointer;  // a JSON pointer
};

// "/input/0/content" as errors tell it: "input[0].content".
inline std::string ErrorPath(const Json::json_pointer& pointer) {
  if (pointer.empty()) return "";
  const std::string before = ErrorPath(pointer.parent_pointer());
  const std::string& last = pointer.back();
  if (last.find_first_not_of("0123456789") == std::string::npos) return before + "[" + last + "]";
  return before.empty() ? last : before + "." + last;
}

// Values that mean something for some member; no member takes the last one.
inline std::vector<Json> MemberValues() {
  return {true, 7, -3.5, "text", Json::array({1, 2}), {{"a", 1}}, {{{"no", {{"such"}}}}, 17.25}};
}

// Returns what a body asks for, in a form that can be compared.
using ReadBody = std::function<absl::StatusOr<std::string>(const std::string&)>;

class ObjectChecker {
 public:
  ObjectChecker(const ObjectPlace& place, ReadBody read)
      : members_(place.object->members),
        body_(Json::parse(place.body)),
        pointer_(place.pointer),
        path_(ErrorPath(pointer_)),
        read_(std::move(read)),
        plain_(read_(place.body)) {
    EXPECT_TRUE(plain_.ok()) << plain_.status() << place.body;
    EXPECT_TRUE(body_.at(pointer_).is_object()) << place.body;
  }

  void Check() const {
    for (const ObjectMember& member : members_) {
      EXPECT_FALSE(member.note.empty()) << PathOf(member.name);
      EXPECT_TRUE(member.idle.empty() || Json::parse(member.idle).is_array()) << member.name;
      CheckNull(member);
      if (member.disposition == Disposition::kHarmless) CheckHarmless(member);
      if (member.disposition == Disposition::kRefused) CheckRefused(member);
      if (member.disposition == Disposition::kDone) CheckDone(member);
    }
    for (const std::string name : {"what", "TYPE", "a.b", "pre fix", "\xc3\xa9"}) {
      for (const Json& value : MemberValues()) EXPECT_EQ(FieldOf(name, value), PathOf(name));
      EXPECT_TRUE(Read(name, nullptr).ok()) << PathOf(name);
    }
  }

 private:
  std::string PathOf(std::string_view name) const {
    return path_.empty() ? std::string(name) : absl::StrCat(path_, ".", std::string(name));
  }
  absl::StatusOr<std::string> Read(std::string_view name, const Json& value) const {
    Json body = body_;
    body.at(pointer_)[std::string(name)] = value;
    return read_(body.dump());
  }
  std::string FieldOf(std::string_view name, const Json& value) const {
    const absl::Status status = Read(name, value).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status << PathOf(name) << " is " << value;
    return protocol::FieldOf(status);
  }
  void ExpectPlain(std::string_view name, const Json& value) const {
    const absl::StatusOr<std::string> read = Read(name, value);
    EXPECT_TRUE(read.ok()) << read.status();
    EXPECT_TRUE(read == plain_) << PathOf(name) << " is " << value;
  }

  void CheckNull(const ObjectMember& member) const {
    if (!body_.at(pointer_).contains(std::string(member.name))) ExpectPlain(member.name, nullptr);
  }
  void CheckHarmless(const ObjectMember& member) const {
    for (const Json& value : MemberValues()) ExpectPlain(member.name, value);
  }
  void CheckRefused(const ObjectMember& member) const {
    const Json idle = member.idle.empty() ? Json::array() : Json::parse(member.idle);
    for (const Json& value : idle) ExpectPlain(member.name, value);
    for (const Json& value : MemberValues()) {
      EXPECT_EQ(FieldOf(member.name, value), PathOf(member.name));
      EXPECT_THAT(std::string(Read(member.name, value).status().message()),
                  ::testing::HasSubstr(std::string(member.note)));
    }
  }
  // A member that is read takes values of its own type, so it rejects some of these.
  void CheckDone(const ObjectMember& member) const {
    const std::string path = PathOf(member.name);
    int num_rejected = 0;
    for (const Json& value : MemberValues()) {
      // It would be an object of another type.
      if (member.name == "type" && value.is_string()) continue;
      const absl::Status status = Read(member.name, value).status();
      if (status.ok()) continue;
      ++num_rejected;
      const std::string field = protocol::FieldOf(status);
      EXPECT_TRUE(field == path || field.starts_with(path + ".") || field.starts_with(path + "["))
          << field << " of " << path << ": " << status;
    }
    EXPECT_GT(num_rejected, 0) << path;
  }

  const std::span<const ObjectMember> members_;
  const Json body_;
  const Json::json_pointer pointer_;
  const std::string path_;
  const ReadBody read_;
  const absl::StatusOr<std::string> plain_;
};

// Checks that each object has a place, and that each member does what its row says.
inline void CheckObjects(std::span<const ObjectMembers* const> objects,
                         const std::vector<ObjectPlace>& places, const ReadBody& read) {
  std::set<const ObjectMembers*> missing(objects.begin(), objects.end());
  std::set<std::string_view> names;
  for (const ObjectMembers* const object : objects) {
    EXPECT_TRUE(names.insert(object->name).second) << object->name;
    std::set<std::string_view> members;
    for (const ObjectMember& member : object->members) {
      EXPECT_TRUE(members.insert(member.name).second) << object->name << " " << member.name;
    }
  }
  for (const ObjectPlace& place : places) {
    SCOPED_TRACE(absl::StrCat(std::string(place.object->name), " at ", place.pointer));
    missing.erase(place.object);
    ObjectChecker(place, read).Check();
  }
  for (const ObjectMembers* const object : missing) ADD_FAILURE() << object->name;
}

// Checks that docs/http.md has the text between the marks of that name. With CONTINUO_WRITE_DOCS=1
// this writes it instead.
inline void CheckDocuments(const std::string& mark, const std::string& expected) {
  const std::string path = testing::SourcePath("docs/http.md");
  std::stringstream bytes;
  bytes << std::ifstream(path).rdbuf();
  std::string text = bytes.str();
  const std::string begin_mark = absl::StrCat("<!-- ", mark, ":begin -->\n");
  const size_t begin = text.find(begin_mark), end = text.find(absl::StrCat("<!-- ", mark, ":end"));
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos && begin < end) << path;
  const size_t first = begin + begin_mark.size();
  if (std::getenv("CONTINUO_WRITE_DOCS") != nullptr) {
    text.replace(first, end - first, expected);
    std::ofstream(path) << text;
    return;
  }
  EXPECT_EQ(text.substr(first, end - first), expected)
      << "run this test with CONTINUO_WRITE_DOCS=1";
}

}  // namespace continuo::gateway::openai
