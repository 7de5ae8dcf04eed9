// SPDX-License-Identifier: Apache-2.0
#include "services/worker/text/calls/marked_text.h"

#include <bitset>

#include "absl/strings/str_cat.h"
#include "services/worker/text/calls/lark.h"

namespace continuo::text {

std::vector<MarkedPiece> DivideAtTokens(std::string_view text,
                                        std::span<const SpecialToken> tokens) {
  std::vector<MarkedPiece> pieces;
  // Vocabularies have thousands of special tokens, and few first bytes.
  std::bitset<256> first_bytes;
  for (const SpecialToken& token : tokens) {
    if (!token.text.empty()) first_bytes.set(static_cast<unsigned char>(token.text.front()));
  }
  for (size_t at = 0; at < text.size();) {
    const SpecialToken* longest = nullptr;
    const bool may_begin = first_bytes[static_cast<unsigned char>(text[at])];
    for (const SpecialToken& token : may_begin ? tokens : std::span<const SpecialToken>()) {
      if (token.text.empty() || !text.substr(at).starts_with(token.text)) continue;
      if (longest == nullptr || token.text.size() > longest->text.size()) longest = &token;
    }
    if (longest != nullptr) {
      pieces.push_back({longest->text, longest});
      at += longest->text.size();
      continue;
    }
    if (pieces.empty() || pieces.back().token != nullptr) pieces.emplace_back();
    pieces.back().text += text[at++];
  }
  return pieces;
}

std::string LarkOf(std::span<const MarkedPiece> pieces) {
  std::string body;
  for (const MarkedPiece& piece : pieces) {
    absl::StrAppend(
        &body, body.empty() ? "" : " ",
        piece.token == nullptr ? Lark::Literal(piece.text) : Lark::Token(piece.token->id));
  }
  return body;
}

}  // namespace continuo::text
