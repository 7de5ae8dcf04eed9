// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/bundle/zip_archive.h"

#include <minizip/zip.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "services/base/status_macros.h"

namespace continuo::text {
namespace {

// The first of January 1980, where DOS's dates begin.
constexpr uLong kDosDate = (1 << 21) | (1 << 16);
constexpr int kCompression = 6;

// What minizip writes instead of a file: it comes back to a header once it knows its sizes.
struct MemoryFile {
  std::string bytes;
  size_t at = 0;
};

voidpf Open(voidpf memory, const void* /*name*/, int /*mode*/) { return memory; }

uLong Write(voidpf /*opaque*/, voidpf stream, const void* data, uLong size) {
  auto& file = *static_cast<MemoryFile*>(stream);
  if (file.bytes.size() < file.at + size) file.bytes.resize(file.at + size);
  file.bytes.replace(file.at, size, static_cast<const char*>(data), size);
  file.at += size;
  return size;
}

// Archives are written, never read.
uLong Read(voidpf /*opaque*/, voidpf /*stream*/, void* /*data*/, uLong /*size*/) { return 0; }

ZPOS64_T Tell(voidpf /*opaque*/, voidpf stream) { return static_cast<MemoryFile*>(stream)->at; }

long Seek(voidpf /*opaque*/, voidpf stream, ZPOS64_T offset, int origin) {  // NOLINT: its type
  auto& file = *static_cast<MemoryFile*>(stream);
  const ZPOS64_T base = origin == ZLIB_FILEFUNC_SEEK_END   ? file.bytes.size()
                        : origin == ZLIB_FILEFUNC_SEEK_CUR ? file.at
                                                           : 0;
  if (offset > file.bytes.size() - base) return -1;
  file.at = base + offset;
  return 0;
}

int Close(voidpf /*opaque*/, voidpf /*stream*/) { return 0; }
int Error(voidpf /*opaque*/, voidpf /*stream*/) { return 0; }

absl::Status Add(zipFile zip, const ZipEntry& entry) {
  if (entry.bytes.size() >= std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat(entry.name, ": is too large for the archive"));
  }
  zip_fileinfo info = {};
  info.dosDate = kDosDate;
  const bool ok = zipOpenNewFileInZip64(zip, entry.name.c_str(), &info, nullptr, 0, nullptr, 0,
                                        nullptr, Z_DEFLATED, kCompression, /*zip64=*/0) == ZIP_OK &&
                  zipWriteInFileInZip(zip, entry.bytes.data(),
                                      static_cast<unsigned>(entry.bytes.size())) == ZIP_OK &&
                  zipCloseFileInZip(zip) == ZIP_OK;
  if (!ok) return absl::InternalError(absl::StrCat(entry.name, ": the archive cannot be written"));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> MakeZip(std::span<const ZipEntry> entries) {
  MemoryFile file;
  zlib_filefunc64_def functions = {.zopen64_file = Open,
                                   .zread_file = Read,
                                   .zwrite_file = Write,
                                   .ztell64_file = Tell,
                                   .zseek64_file = Seek,
                                   .zclose_file = Close,
                                   .zerror_file = Error,
                                   .opaque = &file};
  const zipFile zip = zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions);
  if (zip == nullptr) return absl::InternalError("no archive can be written");
  absl::Status status;
  for (const ZipEntry& entry : entries) {
    status = Add(zip, entry);
    if (!status.ok()) break;
  }
  if (zipClose(zip, nullptr) != ZIP_OK && status.ok()) {
    status = absl::InternalError("the archive cannot be ended");
  }
  RETURN_IF_ERROR(status);
  return std::move(file.bytes);
}

}  // namespace continuo::text
