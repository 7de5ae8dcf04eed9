// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "services/worker/text/response/json_call_reader.h"
#include "services/worker/text/response/python_call_reader.h"
#include "services/worker/text/response/response_event.h"
#include "services/worker/text/response/response_template.h"
#include "services/worker/text/response/tag_call_reader.h"

namespace continuo::text {

// Divides one answer into thoughts, text and calls of tools, as its bytes come. Its events, joined
// where they follow each other, are a function of the bytes and of which of them are special
// tokens, however they are divided into pushes (exactness: parser-of-ids).
//
// Markers and special tokens are no part of any event. What looks like a call and is none becomes
// text, from where that is seen; nothing else is lost. Arguments are told as they come and are the
// beginning of a JSON object. Holds back at most a marker, or OpenCall::kMaxHeld bytes of a call
// that has told nothing yet. Not thread-safe; copyable.
class ResponseParser {
 public:
  struct Options {
    bool calls = true;      // else what would be a call is text, as it is
    bool reasoning = true;  // else thoughts are text, without their markers
    // Thoughts, and the format's header of text, stand before the text alone: from its first byte
    // on, and behind a thought, all is text as it is, markers included.
    bool thoughts_first = false;
    const ParameterTypes* types = nullptr;  // of the tools' parameters; may be null
  };

  // `response_template` and `options.types` outlive the parser.
  ResponseParser(const ResponseTemplate* response_template, Options options);

  // Before the first push: `prompt` is the end of the prompt, which the chat template wrote, back
  // to the last content of the conversation. An answer may begin in it. Only calls that have begun
  // there are told.
  void Begin(std::string_view prompt, ResponseEvents* events);

  // Takes whole characters.
  void Push(std::string_view text, ResponseEvents* events);
  // Takes a special token, by its text.
  void PushSpecial(std::string_view token, ResponseEvents* events);
  // Returns whether a thought is open.
  bool in_reasoning() const;
  // The answer ends, where nothing follows.
  void Finish(ResponseEvents* events);

 private:
  using Reader = std::variant<JsonCallReader, TagCallReader, PythonCallReader>;
  enum class Mark : char { kText, kSpecialBegin, kSpecial };
  // A marker that begins at a place of the held bytes.
  struct Found {
    Pattern::Match::State state = Pattern::Match::State::kNone;
    size_t length = 0;
    const ResponseField* field = nullptr;  // that opens; null: the marker only ends or is ignored
    std::string name;
  };

  void Add(std::string_view bytes, Mark first, Mark rest);
  void Run(bool at_end, ResponseEvents* events);
  // Each takes from what is held. False: more has to come first.
  bool RunText(bool at_end, ResponseEvents* events);
  bool RunCall(bool at_end, ResponseEvents* events);
  bool TakeCallBytes(size_t at, size_t* length, ResponseEvents* events);

  void Watch();
  void BeginText();
  Found FindAt(size_t at, bool at_end) const;
  void Open(const Found& found);
  void Close(bool at_marker, ResponseEvents* events);
  enum class CallsEnd { kMarker, kCut, kRefused };
  void EndCalls(CallsEnd why, ResponseEvents* events);
  void Drop(size_t bytes);
  // Text or thoughts from what is held, without special tokens.
  void Tell(size_t begin, size_t end, ResponseEvents* events);
  void TellBytes(std::string_view bytes, ResponseEvents* events);
  void AtMarker(ResponseEvents* events);
  void TellSpaces(ResponseEvents* events);
  bool StartsAt(size_t at) const { return offset_ + at == 0; }
  ResponseEvent::Kind kind() const;

  const ResponseTemplate* template_;
  Options options_;
  const ResponseField* field_ = nullptr;  // the open one; null: none, or the implicit one
  // thoughts_first: no thought may follow, and neither may a header.
  bool rest_is_text_ = false, has_text_begun_ = false;
  std::optional<Reader> reader_;  // of field_; none where the rest of it is text
  std::vector<const Pattern*> closes_, ignored_;
  std::vector<const ResponseField*> opens_;

  std::string held_;
  std::vector<Mark> marks_;  // of held_
  size_t offset_ = 0;        // bytes that were dropped before held_
  std::string untold_;       // bytes of a call that told nothing yet
  std::string spaces_;       // at the end of the text, told if something but a marker follows
  bool after_marker_ = false;
};

}  // namespace continuo::text
