// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/discovery/kubernetes/endpoint_slices.h"

#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/base/json_text.h"
#include "services/base/sorted_distinct.h"
#include "services/base/status_macros.h"

namespace continuo::gateway {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;
// A slice has at most 1,000 endpoints of some 30 values each; a page of 100 slices has as many
// times more.
constexpr int64_t kMaxValues = 8'000'000;

absl::StatusOr<Json> ParseObject(const char* name, std::string_view text) {
  RETURN_IF_ERROR(CheckJson(name, text, kMaxDepth, kMaxValues));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return absl::InvalidArgumentError(absl::StrCat(name, " is no object"));
  return json;
}

// The member of an object; null where there is none, or `of` is no object.
const Json& Member(const Json& of, const char* name) {
  static const Json null;
  if (!of.is_object()) return null;
  const auto found = of.find(name);
  return found == of.end() ? null : *found;
}

std::string Text(const Json& of, const char* name) {
  const Json& value = Member(of, name);
  return value.is_string() ? value.get<std::string>() : "";
}

// The number of the port that is named so in the slice; 0 where none is.
int PortNamed(const Json& slice, const std::string& name) {
  for (const Json& port : Member(slice, "ports")) {
    const Json& number = Member(port, "port");
    if (Text(port, "name") != name || !number.is_number_unsigned()) continue;
    const auto value = number.get<uint64_t>();
    if (value >= 1 && value <= 65535) return static_cast<int>(value);
  }
  return 0;
}

// The API says that an endpoint whose condition is not known counts as ready.
bool IsReady(const Json& endpoint) {
  const Json& ready = Member(Member(endpoint, "conditions"), "ready");
  return !ready.is_boolean() || ready.get<bool>();
}

// The addresses of a slice's ready endpoints, with their port. `port` is a number or a name.
std::vector<std::string> AddressesOf(const Json& slice, bool v6, const std::string& port) {
  int number = 0;
  if (!absl::SimpleAtoi(port, &number)) number = PortNamed(slice, port);
  std::vector<std::string> addresses;
  if (number == 0) return addresses;
  for (const Json& endpoint : Member(slice, "endpoints")) {
    const Json& hosts = Member(endpoint, "addresses");
    // The API says that the first address stands for all of them.
    if (!IsReady(endpoint) || !hosts.is_array() || hosts.empty() || !hosts[0].is_string()) continue;
    const auto& host = hosts[0].get_ref<const std::string&>();
    addresses.push_back(v6 ? absl::StrCat("[", host, "]:", number)
                           : absl::StrCat(host, ":", number));
  }
  return addresses;
}

}  // namespace

EndpointSlices::EndpointSlices(std::string port) : port_(std::move(port)) {}

absl::StatusOr<EndpointSlices::Page> EndpointSlices::TakePage(std::string_view text, bool first) {
  ASSIGN_OR_RETURN(const Json list, ParseObject("the list of EndpointSlices", text));
  const Json& items = Member(list, "items");
  const Json& metadata = Member(list, "metadata");
  Page page = {Text(metadata, "resourceVersion"), Text(metadata, "continue")};
  if (!items.is_array() || page.resource_version.empty()) {
    return absl::InvalidArgumentError("the list of EndpointSlices has no items or resourceVersion");
  }
  if (first) slices_.clear();
  for (const Json& item : items) Take(item, /*deleted=*/false);
  return page;
}

absl::StatusOr<std::string> EndpointSlices::TakeEvent(std::string_view text) {
  ASSIGN_OR_RETURN(const Json event, ParseObject("an event of EndpointSlices", text));
  const std::string type = Text(event, "type");
  const Json& object = Member(event, "object");
  if (type == "ERROR") {
    const std::string message = Text(object, "message");
    const Json& code = Member(object, "code");
    constexpr int kGone = 410;
    if (code.is_number_integer() && code == kGone) return absl::OutOfRangeError(message);
    return absl::UnavailableError(message);
  }
  std::string version = Text(Member(object, "metadata"), "resourceVersion");
  if (version.empty()) {
    return absl::InvalidArgumentError("an event of EndpointSlices has no resourceVersion");
  }
  // Events of other types, such as BOOKMARK, only tell the version.
  if (type == "ADDED" || type == "MODIFIED" || type == "DELETED") Take(object, type == "DELETED");
  return version;
}

void EndpointSlices::Take(const Json& slice, bool deleted) {
  const std::string name = Text(Member(slice, "metadata"), "name");
  const std::string type = Text(slice, "addressType");
  if (deleted || (type != "IPv4" && type != "IPv6")) {
    slices_.erase(name);
    return;
  }
  slices_[name] = {type == "IPv6", AddressesOf(slice, type == "IPv6", port_)};
}

std::vector<std::string> EndpointSlices::Addresses() const {
  std::vector<std::string> v4, v6;
  for (const auto& [name, slice] : slices_) {
    std::vector<std::string>& to = slice.v6 ? v6 : v4;
    to.insert(to.end(), slice.addresses.begin(), slice.addresses.end());
  }
  return SortedDistinct(std::move(v4.empty() ? v6 : v4));
}

}  // namespace continuo::gateway
