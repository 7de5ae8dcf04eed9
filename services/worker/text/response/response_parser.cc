// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/response/response_parser.h"

#include <algorithm>
#include <utility>

#include "services/worker/text/response/spaces.h"

namespace continuo::text {
namespace {

using Channel = ResponseField::Channel;
using State = Pattern::Match::State;

// Differs after every byte that was told.
std::pair<size_t, size_t> Told(const ResponseEvents& events) {
  return {events.size(), events.empty() ? 0 : events.back().bytes.size()};
}

}  // namespace

ResponseParser::ResponseParser(const ResponseTemplate* response_template, Options options)
    : template_(response_template), options_(options) {
  Watch();
}

// Watches for what ends the open field, or begins another one where there is none.
void ResponseParser::Watch() {
  opens_.clear();
  closes_.clear();
  ignored_.clear();
  if (field_ != nullptr) {
    if (field_->has_close) closes_.push_back(&field_->close);
    return;
  }
  if (options_.thoughts_first) {
    for (const ResponseField& field : template_->fields) {
      if (rest_is_text_ || !field.has_open || field.channel != Channel::kReasoning) continue;
      opens_.push_back(&field);
    }
    if (template_->has_text_header && !has_text_begun_) {
      ignored_.push_back(&template_->text_header);
    }
    return;
  }
  for (const ResponseField& field : template_->fields) {
    if (!field.has_open) {
      if (field.has_close) ignored_.push_back(&field.close);
    } else if (field.channel != Channel::kCalls || options_.calls) {
      opens_.push_back(&field);
    }
  }
  if (template_->has_anchor) ignored_.push_back(&template_->anchor);
  for (const Pattern& pattern : template_->ignored) ignored_.push_back(&pattern);
}

void ResponseParser::Begin(std::string_view prompt, ResponseEvents* events) {
  if (template_->has_anchor) {
    size_t begin = std::string_view::npos;
    for (size_t at = 0; at < prompt.size(); ++at) {
      if (!template_->anchor.MayBeginWith(prompt[at])) continue;
      const Pattern::Match match = template_->anchor.MatchAt(prompt.substr(at), false, true);
      if (match.state == State::kMatch && match.length > 0) begin = at + match.length;
    }
    if (begin != std::string_view::npos) {
      ResponseEvents said;
      Push(prompt.substr(begin), &said);
      spaces_.clear();
      for (ResponseEvent& event : said) {
        if (event.kind != ResponseEvent::Kind::kText &&
            event.kind != ResponseEvent::Kind::kReasoning) {
          events->push_back(std::move(event));
        }
      }
      return;
    }
  }
  // Without an anchor only the last marker counts: the field that it opens.
  const std::string_view end = StripRight(prompt);
  for (const ResponseField& field : template_->fields) {
    if (!field.has_open || field.channel != Channel::kReasoning) continue;
    for (size_t at = 0; at < end.size(); ++at) {
      if (!field.open.MayBeginWith(end[at])) continue;
      const Pattern::Match match = field.open.MatchAt(end.substr(at), false, true);
      if (match.state != State::kMatch || match.length != end.size() - at || match.length == 0) {
        continue;
      }
      field_ = &field;
      after_marker_ = field.strip;
      Watch();
      return;
    }
  }
}

void ResponseParser::Push(std::string_view text, ResponseEvents* events) {
  Add(text, Mark::kText, Mark::kText);
  Run(/*at_end=*/false, events);
}

void ResponseParser::PushSpecial(std::string_view token, ResponseEvents* events) {
  Add(token, Mark::kSpecialBegin, Mark::kSpecial);
  Run(/*at_end=*/false, events);
}

bool ResponseParser::in_reasoning() const {
  return field_ != nullptr && field_->channel == Channel::kReasoning;
}

void ResponseParser::Finish(ResponseEvents* events) {
  Run(/*at_end=*/true, events);
  Close(/*at_marker=*/false, events);
}

void ResponseParser::Add(std::string_view bytes, Mark first, Mark rest) {
  if (bytes.empty()) return;
  held_ += bytes;
  marks_.push_back(first);
  marks_.resize(held_.size(), rest);
}

void ResponseParser::Run(bool at_end, ResponseEvents* events) {
  while (!held_.empty()) {
    if (!(reader_.has_value() ? RunCall(at_end, events) : RunText(at_end, events))) return;
  }
}

ResponseParser::Found ResponseParser::FindAt(size_t at, bool at_end) const {
  Found found;
  bool is_pending = false;
  const std::string_view text = std::string_view(held_).substr(at);
  const auto look = [&](const Pattern& pattern, const ResponseField* field) {
    if (!pattern.MayBeginWith(text[0])) return;
    const Pattern::Match match = pattern.MatchAt(text, StartsAt(at), at_end);
    is_pending |= match.state == State::kPending;
    if (match.state != State::kMatch) return;
    // An empty marker opens what nothing else opens at the start.
    if (match.length == 0 && field == nullptr) return;
    if (found.state == State::kMatch && found.length >= match.length) return;
    found = {State::kMatch, match.length, field, std::string(match.group("name"))};
  };
  for (const ResponseField* field : opens_) look(field->open, field);
  for (const Pattern* pattern : closes_) look(*pattern, nullptr);
  for (const Pattern* pattern : ignored_) look(*pattern, nullptr);
  if (is_pending) found.state = State::kPending;
  return found;
}

bool ResponseParser::RunText(bool at_end, ResponseEvents* events) {
  for (size_t at = 0; at < held_.size(); ++at) {
    const Found found = FindAt(at, at_end);
    if (found.state == State::kNone) {
      // White space between a thought and a header is neither's.
      const bool is_between = rest_is_text_ && StripLeft(std::string_view(&held_[at], 1)).empty();
      if (options_.thoughts_first && field_ == nullptr && !is_between) BeginText();
      continue;
    }
    Tell(0, at, events);
    Drop(at);
    if (found.state == State::kPending) return false;
    AtMarker(events);
    Drop(found.length);
    if (found.field != nullptr) {
      Open(found);
    } else if (field_ != nullptr) {
      Close(/*at_marker=*/true, events);
    } else if (options_.thoughts_first) {
      // The header of text, all of which follows.
      after_marker_ = false;
      BeginText();
    }
    return true;
  }
  Tell(0, held_.size(), events);
  Drop(held_.size());
  return true;
}

void ResponseParser::BeginText() {
  if (has_text_begun_) return;
  rest_is_text_ = has_text_begun_ = true;
  Watch();
}

// Gives the reader what is held, up to what ends the field.
bool ResponseParser::RunCall(bool at_end, ResponseEvents* events) {
  size_t at = 0;
  while (at < held_.size()) {
    const bool at_rest = std::visit([](const auto& reader) { return reader.at_rest(); }, *reader_);
    if (at_rest && !field_->has_close) {
      Drop(at);
      Close(/*at_marker=*/true, events);
      return true;
    }
    // A marker in a string is part of it, unless it is a special token.
    if (at_rest || marks_[at] == Mark::kSpecialBegin) {
      const Found found = FindAt(at, at_end);
      if (found.state != State::kNone) {
        Drop(at);
        if (found.state == State::kPending) return false;
        Drop(found.length);
        Close(/*at_marker=*/true, events);
        return true;
      }
    }
    size_t length = 0;
    if (!TakeCallBytes(at, &length, events)) {
      // No call any more: the rest is text.
      Drop(at);
      EndCalls(CallsEnd::kRefused, events);
      return true;
    }
    at += length;
  }
  Drop(at);
  const bool done = std::visit([](const auto& reader) { return reader.at_rest(); }, *reader_);
  if (done && !field_->has_close) Close(/*at_marker=*/true, events);
  return true;
}

bool ResponseParser::TakeCallBytes(size_t at, size_t* length, ResponseEvents* events) {
  const auto told = Told(*events);
  bool taken = false;
  if (marks_[at] == Mark::kText) {
    *length = 1;
    taken = std::visit([&](auto& reader) { return reader.Push(held_[at], events); }, *reader_);
  } else {
    size_t end = at + 1;
    while (end < held_.size() && marks_[end] == Mark::kSpecial) ++end;
    *length = end - at;
    const std::string_view token = std::string_view(held_).substr(at, *length);
    taken = std::visit([&](auto& reader) { return reader.PushSpecial(token, events); }, *reader_);
  }
  if (Told(*events) != told) {
    untold_.clear();
  } else if (taken && marks_[at] == Mark::kText) {
    untold_ += held_[at];
  }
  if (untold_.size() <= OpenCall::kMaxHeld) return taken;
  untold_.pop_back();
  return false;
}

void ResponseParser::Open(const Found& found) {
  field_ = found.field;
  after_marker_ = field_->strip;
  if (field_->channel == Channel::kCalls) {
    switch (field_->syntax) {
      case ResponseField::Syntax::kJson:
        reader_.emplace(JsonCallReader(field_, found.name));
        break;
      case ResponseField::Syntax::kTags:
        reader_.emplace(TagCallReader(field_, found.name, options_.types));
        break;
      case ResponseField::Syntax::kPython:
        reader_.emplace(PythonCallReader(found.name));
        break;
    }
    untold_.clear();
  }
  Watch();
}

// Ends the calls of the open field. Bytes that told nothing are text where there was no call, or
// where they are why the calls ended.
void ResponseParser::EndCalls(CallsEnd why, ResponseEvents* events) {
  const bool closed = why == CallsEnd::kMarker;
  const bool had_call =
      std::visit([&](auto& reader) { return reader.End(closed, events); }, *reader_);
  std::string text;
  if (!had_call || why == CallsEnd::kRefused) text.swap(untold_);
  untold_.clear();
  if (TagCallReader* tags = std::get_if<TagCallReader>(&*reader_)) text = tags->TakeRest();
  reader_.reset();
  TellBytes(text, events);
}

void ResponseParser::Close(bool at_marker, ResponseEvents* events) {
  if (reader_.has_value()) EndCalls(at_marker ? CallsEnd::kMarker : CallsEnd::kCut, events);
  if (at_marker) {
    AtMarker(events);
  } else {
    TellSpaces(events);
  }
  field_ = nullptr;
  if (at_marker) AtMarker(events);
  rest_is_text_ = options_.thoughts_first;
  Watch();
}

// White space beside a marker is not told.
void ResponseParser::AtMarker(ResponseEvents* events) {
  const bool strip = field_ != nullptr          ? field_->strip
                     : template_->implicit >= 0 ? template_->fields[template_->implicit].strip
                                                : true;
  after_marker_ = strip;
  if (strip) spaces_.clear();
  TellSpaces(events);
}

void ResponseParser::TellSpaces(ResponseEvents* events) {
  AppendEvent(kind(), spaces_, events);
  spaces_.clear();
}

void ResponseParser::Drop(size_t bytes) {
  held_.erase(0, bytes);
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<ptrdiff_t>(bytes));
  offset_ += bytes;
}

ResponseEvent::Kind ResponseParser::kind() const {
  return in_reasoning() && options_.reasoning ? ResponseEvent::Kind::kReasoning
                                              : ResponseEvent::Kind::kText;
}

void ResponseParser::Tell(size_t begin, size_t end, ResponseEvents* events) {
  std::string text;
  for (size_t at = begin; at < end; ++at) {
    if (marks_[at] == Mark::kText) text += held_[at];
  }
  TellBytes(text, events);
}

void ResponseParser::TellBytes(std::string_view bytes, ResponseEvents* events) {
  if (bytes.empty()) return;
  if (after_marker_) {
    bytes = StripLeft(bytes);
    if (bytes.empty()) return;
    after_marker_ = false;
  }
  const std::string_view told = StripRight(bytes);
  if (!told.empty()) {
    TellSpaces(events);
    AppendEvent(kind(), told, events);
  }
  spaces_ += bytes.substr(told.size());
  // A run of white space is not held without end: its last bytes are, however they came.
  if (spaces_.size() <= Pattern::kMaxLength) return;
  const size_t excess = spaces_.size() - Pattern::kMaxLength;
  AppendEvent(kind(), std::string_view(spaces_).substr(0, excess), events);
  spaces_.erase(0, excess);
}

}  // namespace continuo::text
