// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/http_answer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "services/base/check.h"

namespace continuo::gateway::openai {
namespace {

using Json = nlohmann::json;

// One answer. The body is empty while it is not complete.
struct Parsed {
  int status = 0;
  std::string content_type;
  std::optional<size_t> content_length;
  bool chunked = false;
  size_t header_size = 0;
};

bool IsTokenChar(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_';
}

// Returns nullopt where the header is not complete.
std::optional<Parsed> ParseHeader(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  Parsed parsed;
  parsed.header_size = end + 4;
  std::string_view lines = bytes.substr(0, end + 2);
  CONTINUO_CHECK(lines.starts_with("HTTP/1.1 ") && lines.size() > 13 && lines[12] == ' ');
  CONTINUO_CHECK(absl::SimpleAtoi(absl::string_view(lines.data() + 9, 3), &parsed.status));
  lines.remove_prefix(lines.find("\r\n") + 2);
  while (!lines.empty()) {
    const std::string_view line = lines.substr(0, lines.find("\r\n"));
    lines.remove_prefix(line.size() + 2);
    const size_t colon = line.find(": ");
    CONTINUO_CHECK(colon != std::string_view::npos && colon > 0);
    const std::string_view name = line.substr(0, colon), value = line.substr(colon + 2);
    CONTINUO_CHECK(std::ranges::all_of(name, IsTokenChar));
    // A client's own id may have other bytes than ASCII's.
    CONTINUO_CHECK(std::ranges::all_of(value, [](char c) {
      return c == '\t' || (static_cast<unsigned char>(c) >= ' ' && c != 0x7f);
    }));
    if (name == "Content-Type") parsed.content_type = value;
    if (name == "Transfer-Encoding") parsed.chunked = value == "chunked";
    if (name == "Content-Length") {
      size_t length = 0;
      CONTINUO_CHECK(absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &length));
      CONTINUO_CHECK(!parsed.content_length.has_value());
      parsed.content_length = length;
    }
  }
  CONTINUO_CHECK(!parsed.chunked || !parsed.content_length.has_value());
  return parsed;
}

// Returns the content of the chunks and removes them from `bytes`; nullopt where they are not
// complete.
std::optional<std::string> TakeChunks(std::string_view* bytes) {
  std::string body;
  std::string_view rest = *bytes;
  while (true) {
    const size_t line_end = rest.find("\r\n");
    if (line_end == std::string_view::npos) return std::nullopt;
    size_t size = 0;
    CONTINUO_CHECK(line_end > 0 && line_end <= 8);
    for (const char c : rest.substr(0, line_end)) {
      CONTINUO_CHECK(absl::ascii_isxdigit(static_cast<unsigned char>(c)));
      size = size * 16 + static_cast<size_t>(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    rest.remove_prefix(line_end + 2);
    if (rest.size() < size + 2) return std::nullopt;
    body.append(rest.substr(0, size));
    CONTINUO_CHECK(rest.substr(size, 2) == "\r\n");
    rest.remove_prefix(size + 2);
    if (size > 0) continue;
    *bytes = rest;
    return body;
  }
}

void CheckError(const Json& body) {
  const Json& error = body.at("error");
  CONTINUO_CHECK(error.at("message").is_string() && !error.at("message").empty());
  CONTINUO_CHECK(error.at("type").is_string());
  for (const char* const member : {"param", "code"}) {
    CONTINUO_CHECK(error.at(member).is_null() || error.at(member).is_string());
  }
}

void CheckJson(int status, std::string_view text) {
  if (status == 200 && text.empty()) return;  // a probe's
  const Json body = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  CONTINUO_CHECK(body.is_object());
  if (status != 200) return CheckError(body);
  for (const char* const member : {"workers", "version", "tokens", "prompt", "eos_token"}) {
    if (body.contains(member)) return;
  }
  const std::string object = body.at("object");
  if (object == "list") {
    CONTINUO_CHECK(body.at("data").is_array());
  } else if (object != "model") {
    CONTINUO_CHECK(object == "chat.completion" || object == "text_completion");
    CONTINUO_CHECK(body.at("choices").is_array() && !body.at("choices").empty());
    for (const Json& choice : body.at("choices")) {
      CONTINUO_CHECK(choice.at("finish_reason").is_string());
    }
    CONTINUO_CHECK(body.at("usage").at("total_tokens").is_number_unsigned());
  }
}

void CheckEvents(std::string_view text, bool is_whole) {
  bool is_over = false;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    if (end == std::string_view::npos) {
      CONTINUO_CHECK(!is_whole);
      return;
    }
    std::string_view event = text.substr(0, end);
    text.remove_prefix(end + 2);
    CONTINUO_CHECK(!is_over);
    // A comment is an event's first line, or where events have no ids a block of its own.
    constexpr std::string_view kComment = ": keep-alive";
    while (event.starts_with(kComment) && event.size() > kComment.size()) {
      CONTINUO_CHECK(event[kComment.size()] == '\n');
      event.remove_prefix(kComment.size() + 1);
    }
    if (event == kComment) continue;
    CONTINUO_CHECK(event.starts_with("data: "));
    event.remove_prefix(6);
    // All but that of an error can be gone on behind.
    const size_t more = event.find('\n');
    const bool has_id = more != std::string_view::npos;
    if (has_id) CONTINUO_CHECK(event.substr(more).find("\nid: ") != std::string_view::npos);
    event = event.substr(0, more);
    if (event == "[DONE]") {
      is_over = true;
      continue;
    }
    const Json body = Json::parse(event, nullptr, /*allow_exceptions=*/false);
    CONTINUO_CHECK(body.is_object());
    CONTINUO_CHECK(has_id != body.contains("error"));
    if (body.contains("error")) {
      CheckError(body);
      is_over = true;
    } else {
      const std::string object = body.at("object");
      CONTINUO_CHECK(object == "chat.completion.chunk" || object == "text_completion");
    }
  }
  CONTINUO_CHECK(is_over || !is_whole);
}

void CheckBody(const Parsed& parsed, std::string_view body) {
  if (parsed.content_type == "application/json") {
    CheckJson(parsed.status, body);
  } else if (parsed.content_type.empty()) {
    CONTINUO_CHECK(body.empty());  // As that of /health.
  } else {
    CONTINUO_CHECK(parsed.content_type.starts_with("text/"));
  }
}

}  // namespace

std::string Normalized(std::string_view bytes) {
  const std::optional<Parsed> parsed = ParseHeader(bytes);
  CONTINUO_CHECK(parsed.has_value());
  std::string answer(bytes.substr(0, parsed->header_size));
  const size_t date = answer.find("Date: ");
  answer.erase(date, answer.find("\r\n", date) - date);
  bytes.remove_prefix(parsed->header_size);
  if (parsed->chunked) {
    const std::optional<std::string> body = TakeChunks(&bytes);
    CONTINUO_CHECK(body.has_value() && bytes.empty());
    answer += *body;
  } else {
    CONTINUO_CHECK(bytes.size() == parsed->content_length);
    answer += bytes;
  }
  return answer;
}

void CheckAnswers(std::string_view bytes, bool is_cut, bool has_head) {
  constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  static const std::set<int> kStatuses = {200, 204, 400, 401, 403, 404, 405, 408, 409, 413, 414,
                                          415, 417, 429, 431, 499, 500, 501, 503, 504, 505};
  while (!bytes.empty()) {
    if (bytes.starts_with(kContinue)) {
      bytes.remove_prefix(kContinue.size());
      continue;
    }
    const std::optional<Parsed> parsed = ParseHeader(bytes);
    CONTINUO_CHECK(parsed.has_value() || is_cut);
    if (!parsed.has_value()) return;
    CONTINUO_CHECK(kStatuses.contains(parsed->status));
    bytes.remove_prefix(parsed->header_size);
    if (parsed->content_type.starts_with("text/event-stream")) {
      CONTINUO_CHECK(parsed->status == 200 && !parsed->content_length.has_value());
      if (!parsed->chunked) return CheckEvents(bytes, !is_cut);
      const std::optional<std::string> body = TakeChunks(&bytes);
      CONTINUO_CHECK(body.has_value() || is_cut);
      if (!body.has_value()) return;
      CheckEvents(*body, /*is_whole=*/true);
      continue;
    }
    CONTINUO_CHECK(parsed->content_length.has_value() == (parsed->status != 204));
    if (parsed->status == 204) continue;
    const size_t length = *parsed->content_length;
    if (has_head && length > 0 && (bytes.empty() || bytes.starts_with("HTTP/1.1 "))) continue;
    CONTINUO_CHECK(bytes.size() >= length || is_cut);
    if (bytes.size() < length) return;
    CheckBody(*parsed, bytes.substr(0, length));
    bytes.remove_prefix(length);
  }
}

}  // namespace continuo::gateway::openai
