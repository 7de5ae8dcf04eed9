// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "services/worker/text/response/response_parser.h"

namespace continuo::text {

// A part of an answer: text, or one special token.
using AnswerPart = std::pair<std::string, bool>;

inline ResponseEvents Joined(const ResponseEvents& events) {
  ResponseEvents joined;
  for (const ResponseEvent& event : events) {
    if (event.kind == ResponseEvent::Kind::kCallEnd) {
      joined.push_back(event);
    } else {
      AppendEvent(event.kind, event.bytes, &joined);
    }
  }
  return joined;
}

// Events as one line: `text "a" thought "b" call f {"x": 1}.` A call that is not whole ends in "!".
inline std::string Line(const ResponseEvents& events) {
  std::string line;
  for (const ResponseEvent& event : Joined(events)) {
    switch (event.kind) {
      case ResponseEvent::Kind::kText:
        line += "text \"" + event.bytes + "\" ";
        break;
      case ResponseEvent::Kind::kReasoning:
        line += "thought \"" + event.bytes + "\" ";
        break;
      case ResponseEvent::Kind::kCallBegin:
        line += "call " + event.bytes + " ";
        break;
      case ResponseEvent::Kind::kArguments:
        line += event.bytes;
        break;
      case ResponseEvent::Kind::kCallEnd:
        line += event.whole ? ". " : "! ";
        break;
    }
  }
  // The space behind the last event, unless that is the beginning of arguments.
  if (!events.empty() && events.back().kind != ResponseEvent::Kind::kArguments) line.pop_back();
  return line;
}

inline ResponseEvents ParseParts(const ResponseTemplate& response_template,
                                 const std::vector<AnswerPart>& parts,
                                 ResponseParser::Options options = {},
                                 std::string_view prompt = {}) {
  ResponseParser parser(&response_template, options);
  ResponseEvents events;
  parser.Begin(prompt, &events);
  for (const auto& [text, special] : parts) {
    if (special) {
      parser.PushSpecial(text, &events);
    } else {
      parser.Push(text, &events);
    }
  }
  parser.Finish(&events);
  return events;
}

inline std::string ParseLine(const ResponseTemplate& response_template, std::string_view answer,
                             ResponseParser::Options options = {}, std::string_view prompt = {}) {
  return Line(ParseParts(response_template, {{std::string(answer), false}}, options, prompt));
}

}  // namespace continuo::text
