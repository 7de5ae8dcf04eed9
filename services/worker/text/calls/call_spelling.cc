// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/call_spelling.h"

#include <cstddef>
#include <vector>

#include "nlohmann/json.hpp"
#include "services/worker/text/response/json_scanner.h"
#include "services/worker/text/response/spaces.h"

namespace continuo::text {
namespace {

bool IsSpace(char c) { return kSpaces.find(c) != kSpaces.npos; }

// A character of the call that is no white space, and where in which text of the form it stands.
struct Mark {
  char c = 0;
  std::string* form = nullptr;  // null: it is not the form's
  size_t at = 0;
};

// Spells a form out, character by character.
class Speller {
 public:
  Speller(std::string_view name, std::string_view arguments) : name_(name), arguments_(arguments) {}

  // False where it cannot be.
  bool Spell(std::string* form, std::string* parameter) {
    for (size_t at = 0; at < form->size(); ++at) {
      const char c = (*form)[at];
      switch (c) {
        case CallForm::kName:
          Place(name_, form, at);
          break;
        case CallForm::kKey:
          Place(key_, form, at);
          break;
        case CallForm::kValue:
          Place(value_, form, at);
          break;
        case CallForm::kIsString:
          Place("true", form, at);
          break;
        case CallForm::kNumber:
          return false;
        case CallForm::kArguments:
          if (parameter->empty()) {
            Place(arguments_, form, at);
          } else {
            const auto json = nlohmann::ordered_json::parse(arguments_, nullptr, false);
            if (!json.is_object() || json.size() != 1 || !json.front().is_string()) return false;
            key_ = json.begin().key();
            value_ = json.front().get<std::string>();
            // White space before the first parameter is the call's.
            const size_t first = marks.size();
            if (!Spell(parameter, parameter)) return false;
            if (first < marks.size()) marks[first].form = nullptr;
            places.push_back({'\0', form, at});
            place_of.push_back(first);
          }
          break;
        default:
          if (!IsSpace(c)) marks.push_back({c, form, at});
      }
    }
    return true;
  }

  std::vector<Mark> marks;
  // Places of the form, and the marks that their texts begin with.
  std::vector<Mark> places;
  std::vector<size_t> place_of;

 private:
  void Place(std::string_view text, std::string* form, size_t at) {
    places.push_back({'\0', form, at});
    place_of.push_back(marks.size());
    for (const char c : text) {
      if (!IsSpace(c)) marks.push_back({c});
    }
  }

  std::string name_, arguments_, key_, value_;
};

// The white space before each mark where the example has them from `begin` on; empty: it has not.
std::vector<std::string> SpacesBefore(const std::vector<Mark>& marks, std::string_view example,
                                      size_t begin) {
  std::vector<std::string> spaces;
  size_t at = begin;
  for (const Mark& mark : marks) {
    std::string space;
    while (at < example.size() && IsSpace(example[at])) space += example[at++];
    if (at == example.size() || example[at] != mark.c) return {};
    ++at;
    spaces.push_back(std::move(space));
  }
  return spaces;
}

}  // namespace

CallForm SpeltAsShown(CallForm form, const ResponseFormat& format) {
  CallForm spelt = form;
  Speller speller(format.example_name, format.example_arguments);
  std::string* const parts[] = {&spelt.before, &spelt.call, &spelt.after};
  for (std::string* const part : parts) {
    if (!speller.Spell(part, &spelt.parameter)) return form;
  }
  std::vector<std::string> spaces;
  for (size_t begin = 0; begin < format.example.size() && spaces.empty(); ++begin) {
    if (IsSpace(format.example[begin])) continue;
    spaces = SpacesBefore(speller.marks, format.example, begin);
  }
  if (spaces.empty()) return form;
  spaces.front().clear();
  // The same texts anew: each character behind its white space.
  const auto write = [&](std::string* part) {
    std::string text;
    for (size_t at = 0; at < part->size(); ++at) {
      const char c = (*part)[at];
      if (IsSpace(c)) continue;
      for (size_t i = 0; i < speller.places.size(); ++i) {
        const Mark& place = speller.places[i];
        if (place.form == part && place.at == at && speller.place_of[i] < spaces.size()) {
          text += spaces[speller.place_of[i]];
        }
      }
      for (size_t i = 0; i < speller.marks.size(); ++i) {
        if (speller.marks[i].form == part && speller.marks[i].at == at) text += spaces[i];
      }
      text += c;
    }
    return text;
  };
  CallForm result = form;
  result.before = write(&spelt.before);
  result.call = write(&spelt.call);
  result.after = write(&spelt.after);
  result.parameter = write(&spelt.parameter);
  if (result.parameter.empty()) return result;
  // White space behind the last parameter follows each.
  const size_t end = result.call.find(CallForm::kArguments) + 1;
  const size_t rest = result.call.find_first_not_of(kSpaces, end);
  if (rest == std::string::npos) return result;
  result.parameter += result.call.substr(end, rest - end);
  result.call.erase(end, rest - end);
  return result;
}

}  // namespace continuo::text
