// SPDX-License-Identifier: Apache-2.0
// Parses and formats the sizes, durations and addresses of flags.
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "services/common/flags.h"

namespace continuo::common {
namespace {

constexpr std::array<std::pair<const char*, uint64_t>, 8> kByteUnits = {{
    {"TiB", uint64_t{1} << 40},
    {"GiB", uint64_t{1} << 30},
    {"MiB", uint64_t{1} << 20},
    {"KiB", uint64_t{1} << 10},
    {"TB", 1'000'000'000'000},
    {"GB", 1'000'000'000},
    {"MB", 1'000'000},
    {"KB", 1'000},
}};

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  std::string number(text);
  uint64_t unit = 1;
  for (const auto& [name, bytes] : kByteUnits) {
    if (absl::EndsWithIgnoreCase(number, name)) {
      unit = bytes;
      number.resize(number.size() - std::string_view(name).size());
      break;
    }
  }
  const absl::Status bad = absl::InvalidArgumentError("a size such as 4GiB, 512MiB or plain bytes");
  uint64_t whole;
  if (absl::SimpleAtoi(number, &whole)) {
    uint64_t bytes;
    if (__builtin_mul_overflow(whole, unit, &bytes)) return bad;
    return bytes;
  }
  double fraction;
  if (unit == 1 || !absl::SimpleAtod(number, &fraction)) return bad;
  const double bytes = fraction * static_cast<double>(unit);
  if (!(bytes >= 0 && bytes < 9.0e18)) return bad;  // Also false for NaN.
  return static_cast<uint64_t>(std::llround(bytes));
}

std::string FormatBytes(uint64_t bytes) {
  for (const auto& [name, unit] : kByteUnits) {
    if (bytes > 0 && std::string_view(name).size() == 3 && bytes % unit == 0) {
      return absl::StrCat(bytes / unit, name);
    }
  }
  return absl::StrCat(bytes);
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view text) {
  absl::Duration duration;
  if (!absl::ParseDuration(std::string(text), &duration) || duration < absl::ZeroDuration()) {
    return absl::InvalidArgumentError("a duration such as 250ms, 5s, 10m or 1h30m");
  }
  return duration;
}

absl::Status ValidateAddress(std::string_view text) {
  const absl::Status bad =
      absl::InvalidArgumentError("an address such as 0.0.0.0:50051, [::]:50051 or unix:path");
  if (text.substr(0, 5) == "unix:") return text.size() > 5 ? absl::OkStatus() : bad;
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad;
  const std::string_view host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":[] ") != std::string_view::npos) return bad;
  const std::string port(text.substr(colon + 1));
  uint32_t number;
  if (port.empty() || port.find_first_not_of("0123456789") != std::string::npos ||
      !absl::SimpleAtoi(port, &number) || number > 65535) {
    return bad;
  }
  return absl::OkStatus();
}

}  // namespace continuo::common
