// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace continuo::model {

// Returns the bytes of a file. NotFound where it does not exist; InvalidArgument where it has more
// than `max_bytes` or cannot be read.
absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes);

// Parses hostile text, which a byte order mark may begin. InvalidArgument begins with `name` and
// tells line and column where it is not JSON, is nested deeper than 16 levels (so that walking the
// value needs little stack), or names a field of one object twice.
absl::StatusOr<nlohmann::json> ParseJson(std::string_view name, std::string_view text);

// Returns the beginning of a value as ASCII text, for error messages.
std::string ShowJson(const nlohmann::json& value);

// A JSON object from a file that may say anything. Reads one field at a time; the first wrong one
// is remembered, later reads then return what was asked for as the default, and status() names
// file, field, value and what is allowed. Absent and null fields are the same. Throws nothing.
class JsonObject {
 public:
  // InvalidArgument where `text` is no JSON object. Errors begin with `name`.
  static absl::StatusOr<JsonObject> Parse(std::string_view name, std::string_view text);

  // True if the field is present and not null.
  bool Has(std::string_view field) const;
  // True if the field is present, perhaps null.
  bool Contains(std::string_view field) const;
  // Reads a whole number in [min, max]; 4096.0 counts as one.
  int64_t Int(std::string_view field, int64_t min, int64_t max, std::optional<int64_t> fallback);
  // Reads a finite number in [min, max].
  double Number(std::string_view field, double min, double max, std::optional<double> fallback);
  // Reads a number that is present and moves it into [min, max]; a move is told in `warnings`.
  double Clamped(std::string_view field, double min, double max,
                 std::vector<std::string>* warnings);
  bool Bool(std::string_view field, bool fallback);
  std::string String(std::string_view field, std::string_view fallback);
  // Reads an object inside; empty where absent. Its errors come through its own status().
  JsonObject Object(std::string_view field);
  // Returns the raw value; null where absent.
  const nlohmann::json& Raw(std::string_view field) const;

  // The fields that none of the calls above has asked for, in the order of their names.
  std::vector<std::string> Unread() const;
  // Sets a field to what another object has.
  void Copy(std::string_view field, const JsonObject& from);

  // Remembers `problem` of `field`, unless there is an earlier one.
  void Fail(std::string_view field, std::string_view problem);
  const absl::Status& status() const { return status_; }
  const std::string& name() const { return name_; }
  const nlohmann::json& value() const { return value_; }

 private:
  JsonObject(std::string name, nlohmann::json value);

  std::string name_;  // "config.json" or "config.json: rope_scaling"
  nlohmann::json value_;
  mutable absl::flat_hash_set<std::string> asked_for_;
  absl::Status status_;
};

}  // namespace continuo::model
