// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/http/inflate.h"

#include <zlib.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kFirstBytes = 64 << 10;
// zlib's names of formats: the largest window, and what is around the data.
constexpr int kGzip = 15 + 16, kZlib = 15, kRaw = -15;

bool Is(std::string_view coding, const char* name) {
  return absl::EqualsIgnoreCase(std::string(coding), name);
}

bool IsGzip(std::string_view coding) { return Is(coding, "gzip") || Is(coding, "x-gzip"); }

// "deflate" is data in zlib's format; some clients send it without.
int FormatOf(std::string_view coding, std::string_view data) {
  if (IsGzip(coding)) return kGzip;
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(data[i]); };
  return data.size() >= 2 && (byte(0) & 0x0f) == 8 && (byte(0) * 256 + byte(1)) % 31 == 0 ? kZlib
                                                                                          : kRaw;
}

// A z_stream that is ended.
struct Stream {
  explicit Stream(int format) { ok = inflateInit2(&z, format) == Z_OK; }
  ~Stream() {
    if (ok) inflateEnd(&z);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  z_stream z = {};
  bool ok;
};

}  // namespace

bool IsKnownCoding(std::string_view coding) {
  return coding.empty() || Is(coding, "identity") || IsGzip(coding) || Is(coding, "deflate");
}

std::optional<HttpProblem> Inflate(std::string_view coding, size_t max_bytes,
                                   const std::function<bool(size_t)>& reserve, std::string* body) {
  if (coding.empty() || Is(coding, "identity")) return std::nullopt;
  const HttpProblem broken = {400,
                              absl::StrCat("the body is no ", IsGzip(coding) ? "gzip" : "deflate",
                                           ", as its Content-Encoding says")};
  const std::string format = IsGzip(coding) ? "gzip" : "deflate";
  const HttpProblem cut = {400, absl::StrCat("the body's ", format, " ended before its end")};
  const HttpProblem no_room = {503, "too many bodies are being received"};
  Stream stream(FormatOf(coding, *body));
  if (!stream.ok) return no_room;
  std::string text;
  stream.z.next_in = reinterpret_cast<Bytef*>(body->data());
  // A body has at most 1 GiB, see --max_request_bytes.
  stream.z.avail_in = static_cast<uInt>(body->size());
  size_t size = 0;
  while (true) {
    if (size == text.size()) {
      // One byte more than allowed shows that there is more.
      const size_t next = std::min(std::max(kFirstBytes, 2 * text.size()), max_bytes + 1);
      if (next == size) {
        return HttpProblem{
            413, absl::StrCat("the body is larger than ", max_bytes, " bytes when it is unpacked")};
      }
      if (!reserve(next)) return no_room;
      text.resize(next);
    }
    const size_t room = std::min<size_t>(text.size() - size, 1 << 30);
    stream.z.next_out = reinterpret_cast<Bytef*>(text.data() + size);
    stream.z.avail_out = static_cast<uInt>(room);
    const int result = inflate(&stream.z, Z_NO_FLUSH);
    size += room - stream.z.avail_out;
    if (result == Z_STREAM_END) {
      if (stream.z.avail_in == 0) break;
      // Files of gzip may follow one another.
      if (!IsGzip(coding) || stream.z.avail_in < 2 || stream.z.next_in[0] != 0x1f ||
          stream.z.next_in[1] != 0x8b) {
        return HttpProblem{400, absl::StrCat("the body has bytes behind the end of its ", format)};
      }
      if (inflateReset(&stream.z) != Z_OK) return no_room;
    } else if (result != Z_OK && !(result == Z_BUF_ERROR && stream.z.avail_out == 0)) {
      return broken;
    } else if (stream.z.avail_in == 0 && stream.z.avail_out > 0) {
      return cut;
    }
  }
  if (size > max_bytes) {
    return HttpProblem{
        413, absl::StrCat("the body is larger than ", max_bytes, " bytes when it is unpacked")};
  }
  text.resize(size);
  *body = std::move(text);
  return std::nullopt;
}

}  // namespace continuo::gateway::openai
