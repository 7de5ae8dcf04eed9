// SPDX-License-Identifier: Apache-2.0
#include "services/common/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <deque>
#include <iostream>
#include <sstream>
#include <type_traits>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "services/base/check.h"
#include "services/base/status_macros.h"
#include "services/common/version.h"

namespace continuo::common {

struct Flags::Flag {
  std::string name, type, default_text, help;
  std::function<absl::Status(const std::string&)> set;
  CLI::Option* option = nullptr;
  bool positional = false;
  bool required = false;
  std::function<bool()> unless;  // of a required one; null: always required
  bool bare = false;             // The value may be left out.
  bool every_use = false;        // Each use is set in turn; otherwise only the last one.
  bool given = false;

  std::string label() const { return positional ? absl::AsciiStrToUpper(name) : "--" + name; }
  std::string variable() const { return "CONTINUO_" + absl::AsciiStrToUpper(name); }
};

struct Flags::Impl {
  std::string program, description, footer;
  std::unique_ptr<CLI::App> root;  // Null in a subcommand.
  CLI::App* app = nullptr;
  std::deque<Flag> flags;
  std::vector<std::unique_ptr<Flags>> subcommands;

  const Flag* Find(std::string_view name) const {
    for (const Flag& flag : flags) {
      if (flag.name == name) return &flag;
    }
    CONTINUO_CHECK(!"a flag of that name");
    return nullptr;
  }
  // Sets the values from CLI11's results and the environment.
  absl::Status Apply(const std::function<const char*(const char*)>& getenv);
  void PrintHelp(std::ostream& out) const;
};

namespace {

constexpr size_t kHelpColumn = 38;
constexpr size_t kHelpWidth = 110;

// Prints the words of `text` in lines that begin at `column`, where the cursor already is.
void PrintWrapped(std::ostream& out, const std::string& text, size_t column) {
  size_t used = column;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (used > column && used + 1 + word.size() > kHelpWidth) {
      out << "\n" << std::string(column, ' ');
      used = column;
    }
    if (used > column) out << ' ';
    out << word;
    used += word.size() + 1;
  }
  out << "\n";
}

// Prints the left part and then the help from kHelpColumn on; the help begins in the next line if
// the left part is too long.
void PrintEntry(std::ostream& out, const std::string& left, const std::string& help) {
  out << left;
  if (left.size() + 2 > kHelpColumn) {
    out << "\n" << std::string(kHelpColumn, ' ');
  } else {
    out << std::string(kHelpColumn - left.size(), ' ');
  }
  PrintWrapped(out, help, kHelpColumn);
}

absl::Status BadValue(const std::string& where, const std::string& value,
                      const absl::Status& status) {
  return absl::InvalidArgumentError(where + ": \"" + absl::CHexEscape(value) + "\" is not " +
                                    std::string(status.message()));
}

// Formats an error of CLI11 in one line.
std::string Describe(const CLI::ParseError& error) {
  std::string text = error.what();
  for (char& c : text) {
    if (c == '\n') c = ' ';
  }
  return std::string(absl::StripAsciiWhitespace(text)) + "; see --help";
}

// Returns the arguments in CLI11's order, the last one first. "--name=" becomes two arguments,
// because CLI11 would take the next one as its value.
std::vector<std::string> Arguments(int argc, const char* const* argv) {
  std::vector<std::string> result;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument.size() > 3 && absl::StartsWith(argument, "--") && argument.back() == '=') {
      argument.pop_back();
      result.push_back(argument);
      argument.clear();
    }
    result.push_back(argument);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

std::string Num(double value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

}  // namespace

absl::Status Flags::Impl::Apply(const std::function<const char*(const char*)>& getenv) {
  for (Flag& flag : flags) {
    std::vector<std::string> values = flag.option->results();
    std::string where = flag.label();
    if (flag.option->count() == 0) {
      const char* value = flag.positional ? nullptr : getenv(flag.variable().c_str());
      if (value == nullptr || *value == '\0') continue;
      where = flag.variable() + " (environment)";
      values = {value};
    }
    // CLI11 has no result for a flag without a value.
    if (values.empty()) values = {""};
    flag.given = true;
    for (size_t i = flag.every_use ? 0 : values.size() - 1; i < values.size(); ++i) {
      const absl::Status status = flag.set(values[i]);
      if (!status.ok()) return BadValue(where, values[i], status);
    }
  }
  for (const Flag& flag : flags) {
    if (flag.required && !flag.given && (flag.unless == nullptr || !flag.unless())) {
      return absl::InvalidArgumentError(flag.label() + " is needed: " + flag.help);
    }
  }
  return absl::OkStatus();
}

void Flags::Impl::PrintHelp(std::ostream& out) const {
  out << "Usage: " << program;
  if (!subcommands.empty()) out << " COMMAND";
  out << " [flags]";
  for (const Flag& flag : flags) {
    if (flag.positional) out << (flag.required ? " " : " [") << flag.label();
    if (flag.positional && !flag.required) out << "]";
  }
  out << "\n\n";
  PrintWrapped(out, description, 0);
  if (!subcommands.empty()) {
    out << "\nCommands:\n";
    for (const auto& sub : subcommands) {
      PrintEntry(out, "  " + sub->impl_->app->get_name(), sub->impl_->description);
    }
    out << "\n`" << program << " COMMAND --help` lists the flags of each.\n";
  }
  out << "\n";
  for (const Flag& flag : flags) {
    std::string left = "  " + flag.label();
    if (!flag.positional) left += flag.bare ? "[=" + flag.type + "]" : "=" + flag.type;
    std::string help = flag.help;
    if (flag.required) help += " Required.";
    if (!flag.default_text.empty()) help += " [" + flag.default_text + "]";
    PrintEntry(out, left, help);
  }
  PrintEntry(out, "  --help", "Print this text and exit.");
  PrintEntry(out, "  --version", "Print the version and exit.");
  out << "\nEvery flag can also be set by an environment variable, CONTINUO_ and its name in "
         "capitals; the flag wins.\n";
  if (!footer.empty()) {
    out << "\n";
    PrintWrapped(out, footer, 0);
  }
}

Flags::Flags(std::string_view program, std::string_view description)
    : impl_(std::make_unique<Impl>()) {
  impl_->program = program;
  impl_->description = description;
  impl_->root = std::make_unique<CLI::App>();
  impl_->app = impl_->root.get();
  impl_->app->set_help_flag("-h,--help");
  impl_->app->set_version_flag("--version", std::string(Version()));
}

Flags::Flags(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Flags::~Flags() = default;

Flags::Flag& Flags::Add(std::string_view name, std::string_view type, std::string_view default_text,
                        std::string_view help, std::function<absl::Status(const std::string&)> set,
                        bool bare) {
  Flag& flag = impl_->flags.emplace_back();
  flag.name = name;
  flag.type = type;
  flag.default_text = default_text;
  flag.help = help;
  flag.set = std::move(set);
  flag.bare = bare;
  flag.option =
      bare ? impl_->app->add_flag("--" + flag.name) : impl_->app->add_option("--" + flag.name);
  flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  return flag;
}

void Flags::Text(std::string_view name, std::string* value, std::string_view help) {
  Add(name, "TEXT", *value, help, [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  });
}

void Flags::TextList(std::string_view name, std::vector<std::string>* value,
                     std::string_view help) {
  Add(name, "LIST", absl::StrJoin(*value, ","), help, [value](const std::string& text) {
    const std::vector<std::string> items = absl::StrSplit(text, ',');
    for (const std::string& item : items) {
      if (absl::StripAsciiWhitespace(item).empty()) {
        return absl::InvalidArgumentError("a comma-separated list without empty items");
      }
    }
    *value = items;
    return absl::OkStatus();
  });
}

void Flags::Repeated(std::string_view name, std::vector<std::string>* value,
                     std::string_view help) {
  Flag& flag = Add(name, "TEXT", "", std::string(help) + " (may be repeated)",
                   [value](const std::string& text) {
                     value->push_back(text);
                     return absl::OkStatus();
                   });
  flag.every_use = true;
}

void Flags::Choice(std::string_view name, std::string* value, std::vector<std::string> allowed,
                   std::string_view help) {
  const std::string list = absl::StrJoin(allowed, "|");
  Add(name, list, *value, help, [=](const std::string& text) {
    for (const std::string& choice : allowed) {
      if (text == choice) {
        *value = text;
        return absl::OkStatus();
      }
    }
    return absl::InvalidArgumentError("one of " + list);
  });
}

void Flags::OptionalChoice(std::string_view name, std::string* value,
                           std::vector<std::string> allowed, std::string_view help) {
  const std::string list = absl::StrJoin(allowed, "|");
  const auto set = [=](const std::string& text) -> absl::Status {
    if (text.empty() || text == "true") {
      *value = allowed.front();
    } else if (text == "false") {
      value->clear();
    } else if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) {
      *value = text;
    } else {
      return absl::InvalidArgumentError("one of " + list);
    }
    return absl::OkStatus();
  };
  Add(name, list, *value, help, set, /*bare=*/true);
}

void Flags::Address(std::string_view name, std::string* value, std::string_view help) {
  Add(name, "ADDRESS", *value, help, [value](const std::string& text) {
    RETURN_IF_ERROR(ValidateAddress(text));
    *value = text;
    return absl::OkStatus();
  });
}

void Flags::OptionalAddress(std::string_view name, std::string* value, std::string_view help) {
  Add(name, "ADDRESS", *value, help, [value](const std::string& text) {
    if (!text.empty()) RETURN_IF_ERROR(ValidateAddress(text));
    *value = text;
    return absl::OkStatus();
  });
}

void Flags::Switch(std::string_view name, bool* value, std::string_view help) {
  const auto set = [value](const std::string& text) {
    const std::string lower = absl::AsciiStrToLower(text);
    const bool yes = lower.empty() || lower == "true" || lower == "1";
    if (!yes && lower != "false" && lower != "0") {
      return absl::InvalidArgumentError("true or false");
    }
    *value = yes;
    return absl::OkStatus();
  };
  Add(name, "BOOL", *value ? "true" : "false", help, set, /*bare=*/true);
}

void Flags::Bytes(std::string_view name, uint64_t* value, uint64_t min, uint64_t max,
                  std::string_view help) {
  Add(name, "BYTES", FormatBytes(*value), help, [=](const std::string& text) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(text);
    if (!bytes.ok() || *bytes < min || *bytes > max) {
      return absl::InvalidArgumentError("a size from " + FormatBytes(min) + " to " +
                                        FormatBytes(max) + ", such as 4GiB, 512MiB or bytes");
    }
    *value = *bytes;
    return absl::OkStatus();
  });
}

void Flags::Duration(std::string_view name, absl::Duration* value, absl::Duration min,
                     absl::Duration max, std::string_view help) {
  Add(name, "DURATION", absl::FormatDuration(*value), help, [=](const std::string& text) {
    const absl::StatusOr<absl::Duration> duration = ParseDuration(text);
    if (!duration.ok() || *duration < min || *duration > max) {
      return absl::InvalidArgumentError("a duration from " + absl::FormatDuration(min) + " to " +
                                        absl::FormatDuration(max) + ", such as 250ms, 5s or 10m");
    }
    *value = *duration;
    return absl::OkStatus();
  });
}

namespace {

// Sets `*value`, a double or an optional float.
template <typename T>
std::function<absl::Status(const std::string&)> SetNumber(T* value, double min, double max) {
  return [=](const std::string& text) {
    double number;
    if (!absl::SimpleAtod(text, &number) || !(number >= min && number <= max)) {
      return absl::InvalidArgumentError("a number from " + Num(min) + " to " + Num(max));
    }
    *value = static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(number);
    return absl::OkStatus();
  };
}

}  // namespace

void Flags::Number(std::string_view name, double* value, double min, double max,
                   std::string_view help) {
  Add(name, "NUMBER", Num(*value), help, SetNumber(value, min, max));
}

void Flags::Number(std::string_view name, std::optional<float>* value, double min, double max,
                   std::string_view help) {
  Add(name, "NUMBER", "", help, SetNumber(value, min, max));
}

void Flags::AddInteger(std::string_view name, std::string_view default_text, int64_t min,
                       uint64_t max, std::string_view help, std::function<void(uint64_t)> set) {
  Add(name, "INT", default_text, help, [=, set = std::move(set)](const std::string& text) {
    int64_t negative;
    uint64_t value;
    if (absl::SimpleAtoi(text, &negative) && negative < 0) {
      value = static_cast<uint64_t>(negative);
      if (negative >= min) return set(value), absl::OkStatus();
    } else if (absl::SimpleAtoi(text, &value) && value <= max &&
               (min < 0 || value >= static_cast<uint64_t>(min))) {
      return set(value), absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("an integer from ", min, " to ", max));
  });
}

void Flags::Positional(std::string_view name, std::string* value, bool required,
                       std::string_view help) {
  Flag& flag = impl_->flags.emplace_back();
  flag.name = name;
  flag.help = help;
  flag.positional = true;
  flag.required = required;
  flag.set = [value](const std::string& text) {
    *value = text;
    return absl::OkStatus();
  };
  flag.option = impl_->app->add_option(flag.name);
}

void Flags::LogLevel(std::string* level) {
  Choice("log_level", level, {"info", "warning", "error"},
         "Lowest severity of log lines. Without info, requests that end well leave no line.");
}

void Flags::Require(std::string_view name, std::function<bool()> unless) {
  Flag& flag = *const_cast<Flag*>(impl_->Find(name));
  flag.required = true;
  flag.unless = std::move(unless);
}

Flags& Flags::Subcommand(std::string_view name, std::string_view description) {
  auto impl = std::make_unique<Impl>();
  impl->program = impl_->program + " " + std::string(name);
  impl->description = description;
  impl->app = impl_->app->add_subcommand(std::string(name));
  impl_->subcommands.push_back(std::unique_ptr<Flags>(new Flags(std::move(impl))));
  return *impl_->subcommands.back();
}

bool Flags::chosen() const { return impl_->app->parsed(); }

bool Flags::given(std::string_view name) const { return impl_->Find(name)->given; }

void Flags::Footer(std::string_view text) { impl_->footer = text; }

std::optional<int> Flags::Parse(int argc, const char* const* argv) {
  return Parse(argc, argv, std::cout, std::cerr, [](const char* name) { return ::getenv(name); });
}

std::optional<int> Flags::Parse(int argc, const char* const* argv, std::ostream& out,
                                std::ostream& err,
                                const std::function<const char*(const char*)>& getenv) {
  // Finds the subcommand that was given, or this program.
  const auto current = [this] {
    for (const auto& sub : impl_->subcommands) {
      if (sub->chosen()) return sub->impl_.get();
    }
    return impl_.get();
  };
  const auto fail = [&](const std::string& message) {
    err << current()->program << ": " << message << std::endl;
    return 2;
  };
  try {
    impl_->app->parse(Arguments(argc, argv));
  } catch (const CLI::CallForHelp&) {
    current()->PrintHelp(out);
    return 0;
  } catch (const CLI::CallForVersion&) {
    out << impl_->program << " " << Version() << "\n";
    return 0;
  } catch (const CLI::ParseError& error) {
    return fail(Describe(error));
  }
  if (!impl_->subcommands.empty() && current() == impl_.get()) {
    std::vector<std::string> names;
    for (const auto& sub : impl_->subcommands) names.push_back(sub->impl_->app->get_name());
    return fail("a command is needed: " + absl::StrJoin(names, ", ") + "; see --help");
  }
  absl::Status status = impl_->Apply(getenv);
  if (status.ok() && current() != impl_.get()) status = current()->Apply(getenv);
  if (!status.ok()) return fail(std::string(status.message()));
  return std::nullopt;
}

}  // namespace continuo::common
