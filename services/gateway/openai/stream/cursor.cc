// SPDX-License-Identifier: Apache-2.0
#include "services/gateway/openai/stream/cursor.h"

#include <cstddef>

#include "absl/strings/escaping.h"

namespace continuo::gateway::openai {
namespace {

constexpr size_t kMaxUnits = 4096;
// An id as gateways make it, and the begin of a fingerprint as workers do, become half as long.
constexpr std::string_view kIdPrefix = "req-";
constexpr size_t kDigits = 32, kFingerprintDigits = 8;
// The largest sizes of a number, an amount, a unit, and a place without its units.
constexpr size_t kMaxNumberBytes = 10;
constexpr size_t kMaxAmountBytes = (1 + Amount::kNumKinds) * kMaxNumberBytes;
constexpr size_t kMaxUnitBytes = kMaxAmountBytes + sizeof(Cursor::Unit::hash);
constexpr size_t kMaxPlaceBytes = 1 + 4 * kMaxNumberBytes + kMaxAmountBytes;

enum NameFlags : uint8_t { kShortId = 1, kShortFingerprint = 2, kHasSeed = 4 };
enum PlaceFlags : uint8_t { kExact = 1, kAtEnd = 2, kLast = 4, kSkips = 8, kOneUnit = 16 };

bool AreDigits(std::string_view digits, size_t number) {
  if (digits.size() != number) return false;
  for (const char c : digits) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

// These return where what follows is to be written.
char* WriteNumber(uint64_t value, char* to) {
  for (; value >= 0x80; value >>= 7) *to++ = static_cast<char>(value | 0x80);
  *to++ = static_cast<char>(value);
  return to;
}

char* WriteFixed(uint32_t value, char* to) {
  for (int shift = 0; shift < 32; shift += 8) *to++ = static_cast<char>(value >> shift);
  return to;
}

// A mask of the kinds that there are, and their numbers.
char* WriteAmount(const Amount& amount, char* to) {
  uint64_t mask = 0;
  for (size_t i = 0; i < amount.of.size(); ++i) mask |= uint64_t{amount.of[i] != 0} << i;
  to = WriteNumber(mask, to);
  for (size_t i = 0; mask >> i != 0; ++i) {
    if (amount.of[i] != 0) to = WriteNumber(amount.of[i], to);
  }
  return to;
}

void PutNumber(uint64_t value, std::string* bytes) {
  char number[kMaxNumberBytes];
  bytes->append(number, static_cast<size_t>(WriteNumber(value, number) - number));
}

void PutText(std::string_view text, bool is_short, std::string* bytes) {
  if (is_short) {
    bytes->append(absl::HexStringToBytes(absl::string_view(text.data(), text.size())));
  } else {
    PutNumber(text.size(), bytes);
    bytes->append(text);
  }
}

// Reads what the functions above write. After an error everything reads as 0.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool is_good() const { return is_good_; }
  bool is_at_end() const { return bytes_.empty(); }

  uint8_t Byte() {
    const std::string_view bytes = Bytes(1);
    return static_cast<uint8_t>(bytes.empty() ? 0 : bytes.front());
  }
  uint64_t Number() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = Byte();
      value |= uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    is_good_ = false;
    return 0;
  }
  uint32_t Fixed() {
    uint32_t value = 0;
    const std::string_view bytes = Bytes(4);
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    return value;
  }
  std::string Text(bool is_short, size_t num_digits) {
    if (!is_short) return std::string(Bytes(Number()));
    const std::string_view bytes = Bytes(num_digits / 2);
    return absl::BytesToHexString(absl::string_view(bytes.data(), bytes.size()));
  }
  Amount ReadAmount() {
    Amount amount;
    const uint64_t mask = Number();
    for (size_t i = 0; i < amount.of.size(); ++i) {
      if ((mask >> i & 1) != 0) amount.of[i] = Number();
    }
    return amount;
  }
  std::string_view Bytes(uint64_t number) {
    is_good_ = is_good_ && number <= bytes_.size();
    if (!is_good_) return {};
    const std::string_view first = bytes_.substr(0, number);
    bytes_.remove_prefix(number);
    return first;
  }

 private:
  std::string_view bytes_;
  bool is_good_ = true;
};

}  // namespace

std::string_view ShortFingerprint(std::string_view fingerprint) {
  return AreDigits(fingerprint, kDigits) ? fingerprint.substr(0, kFingerprintDigits) : fingerprint;
}

std::string NameBytes(const Cursor& cursor) {
  std::string bytes;
  const std::string_view id = cursor.request_id;
  const bool is_short_id =
      id.starts_with(kIdPrefix) && AreDigits(id.substr(kIdPrefix.size()), kDigits);
  const bool is_short_fingerprint = AreDigits(cursor.fingerprint, kFingerprintDigits);
  bytes.push_back(static_cast<char>((is_short_id ? kShortId : 0) |
                                    (is_short_fingerprint ? kShortFingerprint : 0) |
                                    (cursor.seed.has_value() ? kHasSeed : 0)));
  PutText(is_short_id ? id.substr(kIdPrefix.size()) : id, is_short_id, &bytes);
  PutText(cursor.fingerprint, is_short_fingerprint, &bytes);
  if (cursor.seed.has_value()) PutNumber(*cursor.seed, &bytes);
  PutNumber(static_cast<uint64_t>(absl::ToUnixSeconds(cursor.reference_time)), &bytes);
  return bytes;
}

void AppendPlaceBytes(const Cursor& cursor, std::string* bytes) {
  const bool skips = cursor.num_skipped > 0, is_one = cursor.units.size() == 1;
  // Every event of a stream has a place, so there is one check of the room for all its numbers.
  const size_t begin = bytes->size();
  bytes->resize(begin + kMaxPlaceBytes + cursor.units.size() * kMaxUnitBytes);
  char* to = bytes->data() + begin;
  *to++ = static_cast<char>((cursor.is_exact ? kExact : 0) | (cursor.at_end ? kAtEnd : 0) |
                            (cursor.is_last ? kLast : 0) | (skips ? kSkips : 0) |
                            (is_one ? kOneUnit : 0));
  to = WriteNumber(cursor.num_events, to);
  if (skips) {
    to = WriteNumber(cursor.num_skipped, to);
    to = WriteNumber(cursor.unit, to);
    to = WriteAmount(cursor.slice, to);
  }
  if (!is_one) to = WriteNumber(cursor.units.size(), to);
  for (const Cursor::Unit& unit : cursor.units) {
    to = WriteAmount(unit.amount, to);
    if (!unit.amount.is_zero()) to = WriteFixed(unit.hash, to);
  }
  bytes->resize(static_cast<size_t>(to - bytes->data()));
}

std::string CursorBytes(const Cursor& cursor) {
  std::string bytes = NameBytes(cursor);
  AppendPlaceBytes(cursor, &bytes);
  return bytes;
}

std::optional<Cursor> ReadCursorBytes(std::string_view bytes) {
  Reader reader(bytes);
  Cursor cursor;
  const uint8_t name_flags = reader.Byte();
  cursor.request_id = reader.Text((name_flags & kShortId) != 0, kDigits);
  if ((name_flags & kShortId) != 0) cursor.request_id.insert(0, kIdPrefix);
  cursor.fingerprint = reader.Text((name_flags & kShortFingerprint) != 0, kFingerprintDigits);
  if ((name_flags & kHasSeed) != 0) cursor.seed = reader.Number();
  cursor.reference_time = absl::FromUnixSeconds(static_cast<int64_t>(reader.Number()));
  const uint8_t flags = reader.Byte();
  cursor.is_exact = (flags & kExact) != 0;
  cursor.at_end = (flags & kAtEnd) != 0;
  cursor.is_last = (flags & kLast) != 0;
  cursor.num_events = reader.Number();
  if ((flags & kSkips) != 0) {
    cursor.num_skipped = static_cast<uint32_t>(reader.Number());
    cursor.unit = static_cast<uint32_t>(reader.Number());
    cursor.slice = reader.ReadAmount();
  }
  const uint64_t num_units = (flags & kOneUnit) != 0 ? 1 : reader.Number();
  if (!reader.is_good() || num_units > kMaxUnits) return std::nullopt;
  for (uint64_t i = 0; i < num_units; ++i) {
    Cursor::Unit& unit = cursor.units.emplace_back();
    unit.amount = reader.ReadAmount();
    if (!unit.amount.is_zero()) unit.hash = reader.Fixed();
  }
  if (!reader.is_good() || !reader.is_at_end()) return std::nullopt;
  return cursor;
}

}  // namespace continuo::gateway::openai
