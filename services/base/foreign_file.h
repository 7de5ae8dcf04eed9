// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace continuo {

// Bytes of a file's beginning that ForeignFile looks at.
inline constexpr size_t kForeignHeadBytes = 512;

// Recognises what often lies where a file of a model should be: nothing, a Git LFS pointer, an HTML
// page, a pickle, an archive. `head` is the file's beginning, at least kForeignHeadBytes of it
// where it has as many. Returns what it is and what to do about it, as the end of a sentence that
// begins with the file's name ("is a Git LFS pointer, not the file itself; ..."), or the empty
// string. Thread-safe.
std::string ForeignFile(std::string_view head);

// Reads the beginning of a file and does the same; empty where the file cannot be read.
std::string ForeignFileAt(const std::string& path);

}  // namespace continuo
