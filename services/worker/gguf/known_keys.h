// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace continuo::gguf {

// Keys of metadata below the architecture's name. Others refuse a file, since they may change the
// answer.

// True for a key that no field of config.json has as it is: it is read otherwise, or says nothing
// that other keys do not.
bool IsOtherKey(std::string_view key);

// False for a key that other architectures alone have.
bool MayHave(std::string_view architecture, std::string_view key);

}  // namespace continuo::gguf
