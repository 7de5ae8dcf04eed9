// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/request_target.h"

#include <algorithm>
#include <boost/beast/http/field.hpp>
#include <boost/beast/http/verb.hpp>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace continuo::gateway::openai {
namespace {

namespace http = boost::beast::http;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(static_cast<unsigned char>(c));
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// The length of "http://" or "https://" at the front of the text, else 0.
size_t SchemeSize(std::string_view text) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (absl::StartsWithIgnoreCase(absl::string_view(text.data(), text.size()),
                                   absl::string_view(scheme.data(), scheme.size()))) {
      return scheme.size();
    }
  }
  return 0;
}

// The host of a target in absolute form.
std::string_view AuthorityOf(std::string_view target) {
  target.remove_prefix(SchemeSize(target));
  return target.substr(0, target.find_first_of("/?#"));
}

// The decoded path without its segments "." and "..", which a client may also write as %2E. An
// encoded slash divides no segments.
std::string ResolveDots(std::string_view path) {
  std::vector<std::string> segments;
  while (true) {
    const size_t slash = path.find('/');
    std::string segment = DecodePercent(path.substr(0, slash));
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (segment != ".") {
      segments.push_back(std::move(segment));
    }
    if (slash == std::string_view::npos) break;
    path.remove_prefix(slash + 1);
    // The empty segment in front of the first slash stays.
    if (segments.empty()) segments.emplace_back();
  }
  return absl::StrJoin(segments, "/");
}

std::optional<HttpProblem> CheckFraming(const HttpRequest& header) {
  std::string codings;
  const auto [begin, end] = header.equal_range(http::field::transfer_encoding);
  if (begin == end) return std::nullopt;
  if (header.version() < 11) {
    return HttpProblem{400, "a request of HTTP/1.0 cannot have Transfer-Encoding"};
  }
  for (auto field = begin; field != end; ++field) {
    absl::StrAppend(&codings, codings.empty() ? "" : ",", std::string(View(field->value())));
  }
  absl::AsciiStrToLower(&codings);
  absl::StripAsciiWhitespace(&codings);
  if (codings == "chunked") return std::nullopt;
  if (!absl::EndsWith(codings, "chunked")) {
    return HttpProblem{400, "Transfer-Encoding must end with chunked"};
  }
  return HttpProblem{501, "Transfer-Encoding is understood only as chunked"};
}

std::optional<HttpProblem> CheckHost(const HttpRequest& header) {
  const auto [begin, end] = header.equal_range(http::field::host);
  const auto count = std::distance(begin, end);
  if (count > 1) return HttpProblem{400, "a request must not have several Host fields"};
  if (count == 0) {
    if (header.version() < 11) return std::nullopt;
    return HttpProblem{400, "a request of HTTP/1.1 must have a Host field"};
  }
  const std::string_view host = View(begin->value());
  // An empty one stands for a target without a host.
  if (!host.empty() && !IsHost(host)) return HttpProblem{400, "Host must be a host name"};
  return std::nullopt;
}

std::optional<HttpProblem> CheckTarget(const HttpRequest& header) {
  const std::string_view target = View(header.target());
  if (target == "*") {
    if (header.method() == http::verb::options) return std::nullopt;
    return HttpProblem{400, "only OPTIONS may ask for *"};
  }
  // Its target is a host, and the handler tells that there is no such method here.
  if (header.method() == http::verb::connect) return std::nullopt;
  if (target.find('#') != std::string_view::npos) {
    return HttpProblem{400, "the target of a request must not have a fragment"};
  }
  if (target.starts_with('/')) return std::nullopt;
  if (SchemeSize(target) == 0) {
    return HttpProblem{400, "the target of a request must be a path or an http URL"};
  }
  if (!IsHost(AuthorityOf(target))) {
    return HttpProblem{400, "the target of the request must name a host"};
  }
  return std::nullopt;
}

}  // namespace

bool IsHost(std::string_view text) {
  const auto is_digit = [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); };
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos || end < 3) return false;
    const std::string_view address = text.substr(1, end - 1);
    if (!std::ranges::all_of(address, [](char c) {
          return HexDigit(c) >= 0 || c == ':' || c == '.' || c == '%' || absl::ascii_isalnum(c);
        })) {
      return false;
    }
    port = text.substr(end + 1);
  } else {
    const size_t colon = std::min(text.find(':'), text.size());
    const std::string_view name = text.substr(0, colon);
    if (name.empty() || !std::ranges::all_of(name, [](char c) {
          return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                 std::string_view("-._~%!$&'()*+,;=").find(c) != std::string_view::npos;
        })) {
      return false;
    }
    port = text.substr(colon);
  }
  if (port.empty()) return true;
  return port.front() == ':' && port.size() <= 6 && std::ranges::all_of(port.substr(1), is_digit);
}

bool IsOtherVersion(std::string_view line) {
  const size_t first = line.find(' ');
  if (first == std::string_view::npos || line.find(' ', first + 1) != line.rfind(' ')) return false;
  if (line.rfind(' ') == first) return false;
  const std::string_view version = line.substr(line.rfind(' ') + 1);
  return version.size() == 8 && version.starts_with("HTTP/") &&
         absl::ascii_isdigit(static_cast<unsigned char>(version[5])) && version[6] == '.' &&
         absl::ascii_isdigit(static_cast<unsigned char>(version[7]));
}

std::optional<HttpProblem> CheckHeader(const HttpRequest& header) {
  if (auto problem = CheckFraming(header)) return problem;
  if (auto problem = CheckHost(header)) return problem;
  return CheckTarget(header);
}

std::string PathOf(std::string_view target) {
  if (target == "*") return "*";
  if (const size_t scheme = SchemeSize(target); scheme > 0) {
    target.remove_prefix(scheme);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  return NormalPath(ResolveDots(target.substr(0, target.find('?'))));
}

std::string_view QueryOf(std::string_view target) {
  const size_t mark = target.find('?');
  return mark == std::string_view::npos ? std::string_view() : target.substr(mark + 1);
}

std::optional<std::string> QueryValue(std::string_view query, std::string_view name) {
  const auto decoded = [](std::string_view text) {
    std::string with_spaces(text);
    std::ranges::replace(with_spaces, '+', ' ');
    return DecodePercent(with_spaces);
  };
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (decoded(pair.substr(0, equals)) != name) continue;
    return decoded(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

std::string DecodePercent(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && HexDigit(text[i + 1]) >= 0 &&
        HexDigit(text[i + 2]) >= 0) {
      decoded.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(text[i]);
    }
  }
  return decoded;
}

std::string NormalPath(std::string_view path) {
  std::string normal = "/";
  for (const char c : path) {
    if (c != '/' || normal.back() != '/') normal.push_back(c);
  }
  if (normal.size() > 1 && normal.back() == '/') normal.pop_back();
  return normal;
}

}  // namespace continuo::gateway::openai
