// SPDX-License-Identifier: Apache-2.0
#pragma once

// Command lines: every flag `--name=VALUE` is also the environment variable CONTINUO_NAME (the
// flag wins, an empty variable counts as unset), stands in --help with unit and default, and a bad
// value is one line that names the flag, the value and what is allowed. Built on CLI11, which
// stays out of this header.

#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace continuo::common {

// "4GiB", "512MiB", "64KiB", "1.5GiB", "100MB" (decimal) or plain bytes.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// In the largest unit that divides it: "4GiB", "1000".
std::string FormatBytes(uint64_t bytes);
// "250ms", "5s", "10m", "1h30m", "inf"; not negative. A bare 0 is taken, other numbers need a unit.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
// "host:port", "[v6]:port", "unix:path", with the port in [0, 65535].
absl::Status ValidateAddress(std::string_view text);

// The flags of one program or one of its subcommands. Not thread-safe. Values hold the defaults
// when they are added and must outlive the parse.
class Flags {
 public:
  Flags(std::string_view program, std::string_view description);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void Text(std::string_view name, std::string* value, std::string_view help);
  // Comma-separated; an empty item is refused.
  void TextList(std::string_view name, std::vector<std::string>* value, std::string_view help);
  // Each use adds one, as it is.
  void Repeated(std::string_view name, std::vector<std::string>* value, std::string_view help);
  void Choice(std::string_view name, std::string* value, std::vector<std::string> allowed,
              std::string_view help);
  void Address(std::string_view name, std::string* value, std::string_view help);
  // The same, or "".
  void OptionalAddress(std::string_view name, std::string* value, std::string_view help);
  // `--name`, `--name=true` or `--name=false`.
  void Switch(std::string_view name, bool* value, std::string_view help);
  void Bytes(std::string_view name, uint64_t* value, uint64_t min, uint64_t max,
             std::string_view help);
  void Duration(std::string_view name, absl::Duration* value, absl::Duration min,
                absl::Duration max, std::string_view help);
  void Number(std::string_view name, double* value, double min, double max, std::string_view help);
  // T is an integer type; for an optional, unset stays unset.
  template <typename T>
  void Integer(std::string_view name, T* value, T min, T max, std::string_view help);
  template <typename T>
  void Integer(std::string_view name, std::optional<T>* value, T min, T max, std::string_view help);
  void Number(std::string_view name, std::optional<float>* value, double min, double max,
              std::string_view help);

  // An argument without a name; needed where `required`.
  void Positional(std::string_view name, std::string* value, bool required, std::string_view help);

  // The flag has to be given, here or in the environment.
  void Require(std::string_view name);

  // A command of its own with its own flags, `continuo generate …`. One has to be given then.
  Flags& Subcommand(std::string_view name, std::string_view description);
  // After the parse: this subcommand was given.
  bool chosen() const;
  // After the parse: the flag was given, here or in the environment.
  bool given(std::string_view name) const;
  // A paragraph below the flags in --help.
  void Footer(std::string_view text);

  // nullopt: go on. Else the exit code: 0 after --help or --version (to `out`), 2 after a bad
  // command line (one line to `err`).
  std::optional<int> Parse(int argc, const char* const* argv);
  std::optional<int> Parse(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                           const std::function<const char*(const char*)>& getenv);

 private:
  struct Impl;
  struct Flag;
  explicit Flags(std::unique_ptr<Impl> impl);

  // `set` takes the text, or its status says what is allowed: "an integer from 1 to 8".
  Flag& Add(std::string_view name, std::string_view type, std::string_view default_text,
            std::string_view help, std::function<absl::Status(const std::string&)> set);
  // [min, max] in two's complement for negative values.
  void AddInteger(std::string_view name, std::string_view default_text, int64_t min, uint64_t max,
                  std::string_view help, std::function<void(uint64_t)> set);

  std::unique_ptr<Impl> impl_;
};

template <typename T>
void Flags::Integer(std::string_view name, T* value, T min, T max, std::string_view help) {
  AddInteger(name, absl::StrCat(*value), static_cast<int64_t>(min), static_cast<uint64_t>(max),
             help, [value](uint64_t v) { *value = static_cast<T>(v); });
}

template <typename T>
void Flags::Integer(std::string_view name, std::optional<T>* value, T min, T max,
                    std::string_view help) {
  AddInteger(name, "", static_cast<int64_t>(min), static_cast<uint64_t>(max), help,
             [value](uint64_t v) { *value = static_cast<T>(v); });
}

}  // namespace continuo::common
