// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "services/worker/text/response/response_event.h"
#include "services/worker/text/response/response_template.h"

namespace continuo::text {

// The types that the tools' JSON schemas give their parameters. Immutable after its last Add.
class ParameterTypes {
 public:
  enum Type : uint8_t {
    kString = 1,
    kInteger = 2,
    kNumber = 4,
    kBoolean = 8,
    kNull = 16,
    kObject = 32,
    kArray = 64,
  };
  // `schema` is the JSON schema of a tool's arguments. What it does not say is unknown.
  void Add(std::string_view tool, std::string_view schema);
  // A set of types; 0 where they are not known.
  uint8_t Of(std::string_view tool, std::string_view parameter) const;

 private:
  std::map<std::pair<std::string, std::string>, uint8_t, std::less<>> types_;
};

// Reads the arguments of a call that are tags, a name and a text each, and tells them as a JSON
// object. A text becomes what its parameter's type says, a string as it comes; of a parameter whose
// type is not known it is JSON where it can be, else a string. Copyable.
class TagCallReader {
 public:
  // `field` and `types` outlive the reader; `types` may be null.
  TagCallReader(const ResponseField* field, std::string_view name, const ParameterTypes* types);

  // Takes every byte.
  bool Push(char c, ResponseEvents* events);
  bool PushSpecial(std::string_view token, ResponseEvents* events);
  bool at_rest() const { return !in_value_; }
  bool End(bool closed, ResponseEvents* events);
  // Returns what stood between the tags, without the closing tags of their frame.
  std::string TakeRest();

 private:
  void Scan(bool at_end, ResponseEvents* events);
  void ValueBytes(std::string_view bytes, ResponseEvents* events);
  void ValueEnds(ResponseEvents* events);
  void BeginIfNot(ResponseEvents* events);

  const ResponseField* field_;
  std::string name_;
  const ParameterTypes* types_;
  OpenCall call_;
  bool in_value_ = false;
  bool streams_ = false;  // the value is told as it comes
  uint8_t type_ = 0;      // of the value
  int num_values_ = 0;
  std::string held_;   // perhaps the beginning of a tag
  std::string value_;  // not yet told
  std::string rest_;
};

}  // namespace continuo::text
