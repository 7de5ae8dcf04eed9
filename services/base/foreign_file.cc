// SPDX-License-Identifier: Apache-2.0
#include "services/base/foreign_file.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace continuo {
namespace {

using std::string_view_literals::operator""sv;

constexpr char kArchive[] = "unpack it, or download the file itself";
constexpr char kPickle[] =
    "a pickle can run any program and is not read; convert it to safetensors, or download the "
    "model's .safetensors files";

// A kind of file that is known by its first bytes.
struct Magic {
  std::string_view bytes;
  std::string_view what;
  std::string_view remedy;
};

constexpr Magic kMagics[] = {
    {"version https://git-lfs.github.com/"sv, "a Git LFS pointer, not the file itself",
     "run `git lfs pull` in the folder, or download the file"},
    {"version https://hawser.github.com/"sv, "a Git LFS pointer, not the file itself",
     "run `git lfs pull` in the folder, or download the file"},
    {"# xet version"sv, "a Xet pointer, not the file itself",
     "download the file with the hub's client"},
    {"PK\x03\x04"sv, "a zip archive, as PyTorch's pickles (.bin, .pt, .pth) are", kPickle},
    {"PK\x05\x06"sv, "an empty zip archive", kArchive},
    {"GGUF"sv, "a GGUF file", "give its own path as the model"},
    {"\x89HDF\r\n"sv, "an HDF5 file, as TensorFlow's weights are", "convert it to safetensors"},
    {"\x93NUMPY"sv, "a NumPy array", "convert it to safetensors"},
    {"\x1f\x8b"sv, "a gzip archive", kArchive},
    {"BZh"sv, "a bzip2 archive", kArchive},
    {"\xfd"
     "7zXZ"sv,
     "an xz archive", kArchive},
    {"\x28\xb5\x2f\xfd"sv, "a zstd archive", kArchive},
    {"7z\xbc\xaf\x27\x1c"sv, "a 7z archive", kArchive},
    {"Rar!"sv, "a RAR archive", kArchive},
    {"\xff\xfe"sv, "text in UTF-16", "save it as UTF-8"},
    {"\xfe\xff"sv, "text in UTF-16", "save it as UTF-8"},
};

constexpr size_t kTarMagicAt = 257;
constexpr size_t kFewZeros = 16;

bool IsPickle(std::string_view head) {
  // The opcode PROTO and a version; a safetensors file of a header so short has a zero there.
  return head.size() >= 2 && head[0] == '\x80' && head[1] >= 1 && head[1] <= 5 &&
         (head.size() < 8 || head.substr(2, 6) != "\0\0\0\0\0\0"sv);
}

std::string Sentence(std::string_view what, std::string_view remedy) {
  return absl::StrCat("is ", absl::string_view(what.data(), what.size()), "; ",
                      absl::string_view(remedy.data(), remedy.size()));
}

}  // namespace

std::string ForeignFile(std::string_view head) {
  if (head.empty()) return Sentence("empty", "its download or copy has not finished");
  for (const Magic& magic : kMagics) {
    if (head.starts_with(magic.bytes)) return Sentence(magic.what, magic.remedy);
  }
  if (IsPickle(head)) return Sentence("a Python pickle", kPickle);
  if (head.size() > kTarMagicAt + 5 && head.substr(kTarMagicAt, 5) == "ustar") {
    return Sentence("a tar archive", kArchive);
  }
  if (head.size() >= kFewZeros &&
      std::all_of(head.begin(), head.end(), [](char c) { return c == 0; })) {
    return Sentence("filled with zeros", "its download or copy has not finished");
  }
  std::string_view text = head;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text[0]))) {
    text.remove_prefix(1);
  }
  const absl::string_view begin(text.data(), text.size());
  if (absl::StartsWithIgnoreCase(begin, "<!doctype html") ||
      absl::StartsWithIgnoreCase(begin, "<html")) {
    return Sentence("an HTML page",
                    "a site answered with a page, as for a login or an error; download it again");
  }
  if (absl::StartsWith(begin, "<?xml")) {
    return Sentence("an XML document", "a store answered with an error; download it again");
  }
  return "";
}

std::string ForeignFileAt(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "";
  std::string head(kForeignHeadBytes, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  if (in.bad()) return "";
  head.resize(static_cast<size_t>(in.gcount()));
  return ForeignFile(head);
}

}  // namespace continuo
