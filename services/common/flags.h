// SPDX-License-Identifier: Apache-2.0
#pragma once

// Parsing of command lines. Every flag `--name=VALUE` is also the environment variable
// CONTINUO_NAME (the flag wins; an empty variable counts as unset) and is listed in --help with its
// unit and default. A bad value gives one line that names the flag, the value and the allowed
// values. Built on CLI11, which stays out of this header.
//
// The help of a flag is one sentence or two, capitalised and with full stops.

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

// Parses "4GiB", "512MiB", "64KiB", "1.5GiB", "100MB" (decimal) or plain bytes.
absl::StatusOr<uint64_t> ParseBytes(std::string_view text);
// Formats a size in the largest unit that divides it: "4GiB", "1000".
std::string FormatBytes(uint64_t bytes);
// Parses "250ms", "5s", "10m", "1h30m" or "inf"; negative durations are errors. Numbers other than
// 0 need a unit.
absl::StatusOr<absl::Duration> ParseDuration(std::string_view text);
// Accepts "host:port", "[v6]:port" and "unix:path", with the port in [0, 65535].
absl::Status ValidateAddress(std::string_view text);

// The flags of one program or of one of its subcommands. Values hold the defaults when they are
// added and must outlive the parse. Not thread-safe.
class Flags {
 public:
  Flags(std::string_view program, std::string_view description);
  ~Flags();
  Flags(const Flags&) = delete;
  Flags& operator=(const Flags&) = delete;

  void Text(std::string_view name, std::string* value, std::string_view help);
  // A comma-separated list; an empty item is an error.
  void TextList(std::string_view name, std::vector<std::string>* value, std::string_view help);
  // Each use of the flag adds one item, as it is.
  void Repeated(std::string_view name, std::vector<std::string>* value, std::string_view help);
  void Choice(std::string_view name, std::string* value, std::vector<std::string> allowed,
              std::string_view help);
  // Given as `--name`, which means the first of `allowed`, `--name=VALUE` or `--name=false`, which
  // is the empty value.
  void OptionalChoice(std::string_view name, std::string* value, std::vector<std::string> allowed,
                      std::string_view help);
  void Address(std::string_view name, std::string* value, std::string_view help);
  // An address or "".
  void OptionalAddress(std::string_view name, std::string* value, std::string_view help);
  // Given as `--name`, `--name=true` or `--name=false`.
  void Switch(std::string_view name, bool* value, std::string_view help);
  void Bytes(std::string_view name, uint64_t* value, uint64_t min, uint64_t max,
             std::string_view help);
  void Duration(std::string_view name, absl::Duration* value, absl::Duration min,
                absl::Duration max, std::string_view help);
  void Number(std::string_view name, double* value, double min, double max, std::string_view help);
  // T is an integer type. An optional stays empty where the flag is not given.
  template <typename T>
  void Integer(std::string_view name, T* value, T min, T max, std::string_view help);
  template <typename T>
  void Integer(std::string_view name, std::optional<T>* value, T min, T max, std::string_view help);
  void Number(std::string_view name, std::optional<float>* value, double min, double max,
              std::string_view help);

  // An argument without a name, which is an error to leave out where `required`.
  void Positional(std::string_view name, std::string* value, bool required, std::string_view help);

  // Adds --log_level, the argument of SetLogLevel.
  void LogLevel(std::string* level);

  // Makes the flag required: it has to be given, here or in the environment, unless `unless` says
  // after the parse that this command line does without it.
  void Require(std::string_view name, std::function<bool()> unless = nullptr);

  // Adds a command with its own flags, as in `continuo generate …`. A program with subcommands has
  // to be given one.
  Flags& Subcommand(std::string_view name, std::string_view description);
  // After the parse: whether this subcommand was given.
  bool chosen() const;
  // After the parse: whether the flag was given, here or in the environment.
  bool given(std::string_view name) const;
  // Adds a paragraph below the flags in --help.
  void Footer(std::string_view text);

  // Returns nullopt where the program goes on, else its exit code: 0 after --help or --version (to
  // `out`), 2 after a bad command line (one line to `err`).
  std::optional<int> Parse(int argc, const char* const* argv);
  std::optional<int> Parse(int argc, const char* const* argv, std::ostream& out, std::ostream& err,
                           const std::function<const char*(const char*)>& getenv);

 private:
  struct Impl;
  struct Flag;
  explicit Flags(std::unique_ptr<Impl> impl);

  // `set` sets the value from the text. Its error says what is allowed: "an integer from 1 to 8".
  // The value of a `bare` flag may be left out.
  Flag& Add(std::string_view name, std::string_view type, std::string_view default_text,
            std::string_view help, std::function<absl::Status(const std::string&)> set,
            bool bare = false);
  // `set` gets negative values in two's complement.
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
