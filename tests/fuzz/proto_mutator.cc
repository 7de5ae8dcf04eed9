// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/proto_mutator.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <vector>

#include "services/base/utf8.h"

namespace continuo {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns a random number below n; 0 for 0.
uint32_t Below(std::minstd_rand& random, size_t n) {
  return n == 0 ? 0 : static_cast<uint32_t>(random() % n);
}

int64_t Integer(std::minstd_rand& random) {
  static constexpr std::array<int64_t, 16> kValues = {0,
                                                      1,
                                                      2,
                                                      3,
                                                      16,
                                                      20,
                                                      21,
                                                      64,
                                                      128,
                                                      255,
                                                      300,
                                                      -1,
                                                      std::numeric_limits<int32_t>::max(),
                                                      std::numeric_limits<uint32_t>::max(),
                                                      std::numeric_limits<int64_t>::max(),
                                                      std::numeric_limits<int64_t>::min()};
  switch (random() % 4) {
    case 0:
      return static_cast<int64_t>(random()) << (random() % 33);
    case 1:
      return kValues[Below(random, kValues.size())];
    default:
      return static_cast<int64_t>(Below(random, 304));
  }
}

float Real(std::minstd_rand& random) {
  static constexpr std::array<float, 14> kValues = {0,
                                                    -0.0F,
                                                    1,
                                                    -1,
                                                    0.5F,
                                                    2,
                                                    -2,
                                                    100,
                                                    -100,
                                                    1e-30F,
                                                    std::numeric_limits<float>::denorm_min(),
                                                    std::numeric_limits<float>::max(),
                                                    std::numeric_limits<float>::infinity(),
                                                    std::numeric_limits<float>::quiet_NaN()};
  if (random() % 2 == 0) return kValues[Below(random, kValues.size())];
  return static_cast<float>(static_cast<int32_t>(Below(random, 4001)) - 2000) / 1000;
}

std::string Text(std::string text, bool utf8, std::minstd_rand& random) {
  const size_t size = text.size(), room = std::min<size_t>(2 * size + 8, 1024);
  if (size > room || random() % 16 == 0) return "";
  text.resize(room);
  text.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(text.data()), size, room));
  // Other text than UTF-8 goes no further than the parser.
  if (!utf8 || random() % 32 == 0 || IsUtf8(text)) return text;
  for (char& c : text) c = static_cast<char>(c & 0x7f);
  return text;
}

// Sets one value of a field that is no message: at `index` of a repeated one, added where that is
// −1.
void SetScalar(Message* message, const FieldDescriptor* field, int index,
               std::minstd_rand& random) {
  const Reflection* const reflection = message->GetReflection();
  const auto set = [&](auto value, auto set_one, auto set_at, auto add) {
    if (!field->is_repeated()) {
      (reflection->*set_one)(message, field, std::move(value));
    } else if (index >= 0) {
      (reflection->*set_at)(message, field, index, std::move(value));
    } else {
      (reflection->*add)(message, field, std::move(value));
    }
  };
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return set(static_cast<int32_t>(Integer(random)), &Reflection::SetInt32,
                 &Reflection::SetRepeatedInt32, &Reflection::AddInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return set(Integer(random), &Reflection::SetInt64, &Reflection::SetRepeatedInt64,
                 &Reflection::AddInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return set(static_cast<uint32_t>(Integer(random)), &Reflection::SetUInt32,
                 &Reflection::SetRepeatedUInt32, &Reflection::AddUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return set(static_cast<uint64_t>(Integer(random)), &Reflection::SetUInt64,
                 &Reflection::SetRepeatedUInt64, &Reflection::AddUInt64);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return set(Real(random), &Reflection::SetFloat, &Reflection::SetRepeatedFloat,
                 &Reflection::AddFloat);
    case FieldDescriptor::CPPTYPE_BOOL:
      return set(random() % 2 == 0, &Reflection::SetBool, &Reflection::SetRepeatedBool,
                 &Reflection::AddBool);
    case FieldDescriptor::CPPTYPE_ENUM:
      return set(static_cast<int>(Below(random, 7)), &Reflection::SetEnumValue,
                 &Reflection::SetRepeatedEnumValue, &Reflection::AddEnumValue);
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string text;
      if (!field->is_repeated()) {
        text = reflection->GetString(*message, field);
      } else if (index >= 0) {
        text = reflection->GetRepeatedString(*message, field, index);
      }
      const bool utf8 = field->type() == FieldDescriptor::TYPE_STRING;
      return set(Text(std::move(text), utf8, random), &Reflection::SetString,
                 &Reflection::SetRepeatedString, &Reflection::AddString);
    }
    default:  // double: no message here has one
      return;
  }
}

void MutateField(Message* message, const FieldDescriptor* field, std::minstd_rand& random) {
  const Reflection* const reflection = message->GetReflection();
  const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!field->is_repeated()) {
    if (reflection->HasField(*message, field) && random() % 8 == 0) {
      reflection->ClearField(message, field);
    } else if (is_message) {
      MutateMessage(reflection->MutableMessage(message, field), random);
    } else {
      SetScalar(message, field, -1, random);
    }
    return;
  }
  const int size = reflection->FieldSize(*message, field);
  const int index = static_cast<int>(Below(random, static_cast<size_t>(size)));
  switch (size == 0 ? 0 : random() % 8) {
    case 0:
      if (!is_message) return SetScalar(message, field, -1, random);
      MutateMessage(reflection->AddMessage(message, field), random);
      return;
    case 1:
      reflection->SwapElements(message, field, index, size - 1);
      reflection->RemoveLast(message, field);
      return;
    case 2:
      if (is_message) {
        const Message& source = reflection->GetRepeatedMessage(*message, field, index);
        reflection->AddMessage(message, field)->CopyFrom(source);
        return;
      }
      // Adds many, so that limits of numbers are reached.
      for (uint32_t i = Below(random, 100); i > 0; --i) SetScalar(message, field, -1, random);
      return;
    default:
      if (!is_message) return SetScalar(message, field, index, random);
      MutateMessage(reflection->MutableRepeatedMessage(message, field, index), random);
  }
}

}  // namespace

void MutateMessage(Message* message, std::minstd_rand& random) {
  // Present fields are changed more often than absent ones are added.
  std::vector<const FieldDescriptor*> present;
  message->GetReflection()->ListFields(*message, &present);
  const auto* const descriptor = message->GetDescriptor();
  if (descriptor->field_count() == 0) return;
  const bool old = !present.empty() && random() % 4 != 0;
  const FieldDescriptor* const field =
      old ? present[Below(random, present.size())]
          : descriptor->field(
                static_cast<int>(Below(random, static_cast<size_t>(descriptor->field_count()))));
  MutateField(message, field, random);
}

}  // namespace continuo
