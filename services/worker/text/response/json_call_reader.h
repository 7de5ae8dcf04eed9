// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/lax_json.h"
#include "services/worker/text/response/response_event.h"
#include "services/worker/text/response/response_template.h"

namespace continuo::text {

// Reads calls that are JSON: objects with name and arguments, one or a list of them, or the
// arguments alone after a name that is known. Arguments are passed on as they are written, once the
// name is known, as far as they are the beginning of a JSON object. Copyable.
class JsonCallReader {
 public:
  // `field` outlives the reader. `name` is the call's, where the field has it in its open.
  JsonCallReader(const ResponseField* field, std::string_view name);

  // False: what was read does not go on with this byte, which is not taken.
  bool Push(char c, ResponseEvents* events);
  // A special token stands for a delimiter of a string, or is left out.
  bool PushSpecial(std::string_view token, ResponseEvents* events);
  // Returns whether the part may end here.
  bool at_rest() const { return phase_ == Phase::kDone; }
  // The part ends, at its marker or (not `closed`) where the answer was cut. False where there was
  // no call in what was not told before.
  bool End(bool closed, ResponseEvents* events);

 private:
  enum class Phase {
    kStart,
    kItem,
    kFirstKey,
    kKey,
    kKeyString,
    kColon,
    kValue,
    kName,
    kArguments,
    kQuoted,
    kSkip,
    kAfterValue,
    kAfterItem,
    kDone,
  };
  bool PushJson(char c, ResponseEvents* events);
  bool Value(char c, ResponseEvents* events);
  bool ArgumentByte(char c, ResponseEvents* events);
  bool NameIsRead(ResponseEvents* events);
  bool QuotedIsRead(ResponseEvents* events);
  bool ObjectEnds(ResponseEvents* events);
  bool TellArguments(std::string_view bytes, ResponseEvents* events);

  const ResponseField* field_;
  std::string known_name_;
  LaxJson lax_;
  Phase phase_ = Phase::kStart;
  OpenCall call_;
  JsonScanner scanner_;
  bool is_list_ = false;
  bool escaped_ = false;        // in a string: the byte before was a backslash
  bool has_arguments_ = false;  // of the current object
  std::string text_;            // a key, a name or quoted arguments, as far as they are read
  std::string held_;            // arguments before the name
};

}  // namespace continuo::text
