// SPDX-License-Identifier: Apache-2.0
#include "services/worker/model/description/json_file.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/base/check.h"
#include "services/base/json_text.h"
#include "services/base/status_macros.h"

namespace continuo::model {
namespace {

constexpr int kMaxDepth = 16;

const nlohmann::json kNull;

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& path, int64_t max_bytes) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    const std::string why = absl::StrCat(path, ": ", std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(why) : absl::InvalidArgumentError(why);
  }
  std::string bytes(static_cast<size_t>(max_bytes) + 1, '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (in.bad()) return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read"));
  if (in.gcount() > max_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has more than ", max_bytes, " bytes, the most that is read"));
  }
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

absl::StatusOr<nlohmann::json> ParseJson(std::string_view name, std::string_view text) {
  RETURN_IF_ERROR(CheckJson(name, text, kMaxDepth));
  nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  CONTINUO_CHECK(!value.is_discarded());
  return value;
}

std::string ShowJson(const nlohmann::json& value) {
  std::string text =
      value.dump(-1, ' ', /*ensure_ascii=*/true, nlohmann::json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

JsonObject::JsonObject(std::string name, nlohmann::json value)
    : name_(std::move(name)), value_(std::move(value)) {}

absl::StatusOr<JsonObject> JsonObject::Parse(std::string_view name, std::string_view text) {
  ASSIGN_OR_RETURN(nlohmann::json value, ParseJson(name, text));
  if (!value.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": not a JSON object"));
  }
  return JsonObject(std::string(name), std::move(value));
}

const nlohmann::json& JsonObject::Raw(std::string_view field) const {
  asked_for_.insert(std::string(field));
  const auto it = value_.find(std::string(field));
  return it == value_.end() ? kNull : *it;
}

bool JsonObject::Contains(std::string_view field) const {
  asked_for_.insert(std::string(field));
  return value_.contains(std::string(field));
}

std::vector<std::string> JsonObject::Unread() const {
  std::vector<std::string> unread;
  for (const auto& [field, value] : value_.items()) {
    if (!asked_for_.contains(field)) unread.push_back(field);
  }
  return unread;
}

void JsonObject::Copy(std::string_view field, const JsonObject& from) {
  value_[std::string(field)] = from.Raw(field);
}

bool JsonObject::Has(std::string_view field) const { return !Raw(field).is_null(); }

void JsonObject::Fail(std::string_view field_view, std::string_view problem_view) {
  if (!status_.ok()) return;
  const std::string field(field_view), problem(problem_view);
  status_ = absl::InvalidArgumentError(
      Has(field) ? absl::StrCat(name_, ": ", field, " is ", ShowJson(Raw(field)), "; ", problem)
                 : absl::StrCat(name_, ": ", field, " is missing; ", problem));
}

int64_t JsonObject::Int(std::string_view field, int64_t min, int64_t max,
                        std::optional<int64_t> fallback) {
  const nlohmann::json& value = Raw(field);
  if (value.is_null() && fallback.has_value()) return *fallback;
  if (value.is_number_unsigned()) {
    const uint64_t v = value.get<uint64_t>();
    if (max >= 0 && v <= static_cast<uint64_t>(max) && (min < 0 || v >= static_cast<uint64_t>(min)))
      return static_cast<int64_t>(v);
  } else if (value.is_number_integer()) {
    const int64_t v = value.get<int64_t>();
    if (v >= min && v <= max) return v;
  } else if (value.is_number_float()) {
    const double v = value.get<double>();
    if (std::abs(v) < 0x1p53 && v == std::floor(v) && v >= static_cast<double>(min) &&
        v <= static_cast<double>(max)) {
      return static_cast<int64_t>(v);
    }
  }
  Fail(field, absl::StrCat("it must be a whole number from ", min, " to ", max));
  return fallback.value_or(min);
}

double JsonObject::Number(std::string_view field, double min, double max,
                          std::optional<double> fallback) {
  const nlohmann::json& value = Raw(field);
  if (value.is_null() && fallback.has_value()) return *fallback;
  if (value.is_number()) {
    const double v = value.get<double>();
    if (v >= min && v <= max) return v;
  }
  Fail(field, absl::StrCat("it must be a number from ", min, " to ", max));
  return fallback.value_or(min);
}

double JsonObject::Clamped(std::string_view field, double min, double max,
                           std::vector<std::string>* warnings) {
  const nlohmann::json& value = Raw(field);
  if (!value.is_number()) {
    Fail(field, absl::StrFormat("it must be a number from %.10g to %.10g", min, max));
    return min;
  }
  const double wanted = value.get<double>(), v = std::clamp(wanted, min, max);
  if (v != wanted) {
    warnings->push_back(
        absl::StrFormat("%s: %s is %s; it must be from %.10g to %.10g, and %.10g is used", name_,
                        std::string(field), ShowJson(value), min, max, v));
  }
  return v;
}

bool JsonObject::Bool(std::string_view field, bool fallback) {
  const nlohmann::json& value = Raw(field);
  if (value.is_null()) return fallback;
  if (value.is_boolean()) return value.get<bool>();
  Fail(field, "it must be true or false");
  return fallback;
}

std::string JsonObject::String(std::string_view field, std::string_view fallback) {
  const nlohmann::json& value = Raw(field);
  if (value.is_null()) return std::string(fallback);
  if (value.is_string()) return value.get<std::string>();
  Fail(field, "it must be a string");
  return std::string(fallback);
}

JsonObject JsonObject::Object(std::string_view field) {
  const nlohmann::json& value = Raw(field);
  const std::string name = absl::StrCat(name_, ": ", std::string(field));
  if (value.is_object()) return JsonObject(name, value);
  if (!value.is_null()) Fail(field, "it must be an object");
  return JsonObject(name, nlohmann::json::object());
}

}  // namespace continuo::model
