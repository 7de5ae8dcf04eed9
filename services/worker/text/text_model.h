// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/worker/text/continuo_text.h"
#include "services/worker/text/response/response_formats.h"

namespace continuo::text {

// Raised whenever the same ids could become other text or the same text other ids: encoding,
// detokenising, stop strings, template rendering, parsing of answers. Part of the worker's
// fingerprint.
inline constexpr int kTextVersion = 9;

struct ChatTool {
  std::string name, description;
  std::string parameters;  // JSON schema, an object; empty: none
};

struct ChatToolCall {
  std::string id, name;
  std::string arguments;  // a JSON object; empty: {}
};

struct ChatMessage {
  std::string role, content;
  std::vector<std::string> parts;  // in place of `content`, where it comes in several
  // Optional fields; the template does not see empty ones.
  std::string reasoning, tool_call_id, name;
  std::vector<ChatToolCall> tool_calls;
};

struct ChatPrompt {
  std::vector<ChatMessage> messages;
  std::vector<ChatTool> tools;          // the template sees none where it is empty
  std::string template_arguments;       // a JSON object; empty: none
  std::string chat_template;            // instead of the model's; empty: the model's
  bool continue_final_message = false;  // the last message is the beginning of the answer
  bool omit_generation_prompt = false;  // the template does not begin an answer
  int64_t now_seconds = 0;              // Unix time of the template's clock (UTC)
};

// A rendered conversation.
struct RenderedChat {
  std::string text;
  // Ascending spans that come from the request: contents, names, arguments, tools. The rest is the
  // template's own, or tags of thoughts and calls in the content of an assistant. The last span
  // ends where the template's last text begins; it is empty where such a tag is in front.
  std::vector<ContinuoSpan> content;
};

// Two texts as a tokenizer joins them, with its special tokens.
struct EncodedPair {
  std::vector<int32_t> tokens;
  std::vector<int32_t> types;  // of each token: the part of the whole that it counts to, from 0 on
  size_t second_begin = 0, second_end = 0;  // the tokens of the second text
};

// Everything that depends on a model's vocabulary: the tokenizer's file, tokenizer_config.json and
// chat template of one Hugging Face folder, or what a GGUF file has of them. Immutable and
// thread-safe. A thin wrapper over the C functions of continuo_text.h, which Rust implements.
class TextModel {
 public:
  // Errors name the file and the cause: NotFound (no tokenizer, with what is there instead),
  // InvalidArgument (cannot be read, or is a file of another kind), Unimplemented (a kind of
  // tokenizer that is not known).
  static absl::StatusOr<std::unique_ptr<TextModel>> Open(const std::string& model_path);

  ~TextModel();
  TextModel(const TextModel&) = delete;
  TextModel& operator=(const TextModel&) = delete;

  // The largest id + 1, added tokens included.
  int32_t vocab_size() const;
  // Bytes of the longest token, at least 1. Where keeps_bytes(), a text of n bytes has at least
  // n / max_token_bytes() tokens, so one far beyond the context is refused without encoding it,
  // which takes some 130 bytes of memory and half a microsecond a byte.
  size_t max_token_bytes() const { return max_token_bytes_; }
  // True where every byte of a text is one of a token's. Other tokenizers drop white space or
  // accents, or make one token of a word that they do not know, so the size of a text says nothing.
  bool keeps_bytes() const;
  bool has_chat_template() const;
  // The source of the tokenizer: a file's name, or "GGUF metadata"; and its algorithm: "byte-level
  // BPE".
  std::string_view tokenizer_source() const { return tokenizer_source_; }
  std::string_view tokenizer_kind() const;

  // `text` must be UTF-8 (InvalidArgument otherwise). With `add_special` the tokenizer adds its own
  // special tokens (such as BOS). Special tokens written in the text count as such.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special) const;

  // Both texts must be UTF-8 (InvalidArgument otherwise). Control tokens written in them, those of
  // EncodeChat, are text unless `parse_special`.
  absl::StatusOr<EncodedPair> EncodePair(std::string_view first, std::string_view second,
                                         bool parse_special) const;

  // FailedPrecondition without a chat template; InvalidArgument where the prompt's own template
  // cannot be read, the template refuses the conversation (raise_exception), arguments or a schema
  // are no JSON object, or rendering exceeds its bounds on steps and output bytes. With tools the
  // template named "tool_use" is rendered, where there is one.
  absl::StatusOr<RenderedChat> RenderMarkedChat(const ChatPrompt& prompt) const;
  // Its text alone.
  absl::StatusOr<std::string> RenderChat(const ChatPrompt& prompt) const;

  // The ids of a rendered conversation. Control tokens that the request wrote are text: only those
  // of the template count as such. Control tokens are the special ones, and other added tokens that
  // the chat template writes. Equal to Encode(chat.text, false) where the request wrote none.
  absl::StatusOr<std::vector<int32_t>> EncodeChat(const RenderedChat& chat) const;

  // The text of `ids` as an answer continues a prompt (a decoder's strip at the start is not
  // applied); bytes that can be no character become one U+FFFD per maximal subpart. Special tokens
  // have no text unless `keep_special`. InvalidArgument names an id outside the vocabulary.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool keep_special) const;

  // Bytes of one token, perhaps part of a character; empty for a special token and for an id
  // that names no token (a model's logits may have more columns than its tokenizer has tokens).
  std::string_view TokenBytes(int32_t id) const;
  // The same, but special tokens have their text.
  std::string_view TokenBytesKeepSpecial(int32_t id) const;
  // TokenBytes in a text whose token before is `previous` (-1: none). They differ only for decoders
  // in which a repeated token adds nothing (CTC).
  std::string_view TokenBytesAfter(int32_t id, int32_t previous) const;
  bool IsSpecial(int32_t id) const;

  // The token as the vocabulary writes it, such as "Ġworld" for " world"; empty for an id that
  // names no token.
  std::string TokenName(int32_t id) const;

  // Returns what a client needs to tokenise and to render the chat template itself:
  // tokenizer_config.json as a JSON object of at most 2 MiB, special tokens as plain text,
  // "chat_template" as it is used. Members that name files are left out. `end_id` is the eos_token
  // where the files name none; -1: null.
  std::string TokenizerInfo(int32_t end_id) const;

  // How the model writes thoughts and calls of tools: its own response_template, else what the chat
  // template renders or names.
  const ResponseFormat& response_format() const { return response_format_; }
  // Tells why the model's own response_template cannot be used. OK where it is used, where there is
  // none, and after UseResponseFormat.
  const absl::Status& response_template_status() const { return response_template_status_; }
  // Tells what of the model's files is not used, or loses text of requests: an eos_token that the
  // vocabulary lacks, messages of which the chat template shows nothing.
  const std::vector<std::string>& warnings() const { return warnings_; }

  // Takes a built-in format by its name instead. Before the model is shared.
  absl::Status UseResponseFormat(std::string_view name);

  // The tokens that end an answer, ascending: what the files call eos_token, and what the chat
  // template closes a turn of the assistant with (it renders a few short conversations). Where it
  // closes one with several, an end among `known`, which other files name, is preferred. A function
  // of the model's files.
  std::vector<int32_t> EndIds(std::span<const int32_t> known) const;

  // The functions of continuo_text.h read it.
  const ContinuoText* handle() const { return text_; }

  // Lower-case hex digests: equal if encoding and decoding, or the chat template, are equal.
  // kTextVersion is not part of them.
  const std::string& tokenizer_digest() const { return tokenizer_digest_; }
  const std::string& template_digest() const { return template_digest_; }

 private:
  explicit TextModel(ContinuoText* text);

  bool HasToken(int32_t id) const { return id >= 0 && id < vocab_size(); }
  void FindFormat();
  // Renders a call of a tool, and how the template takes its arguments. False where it renders
  // none.
  bool RenderCall(RenderedCall* call);
  std::string Markers() const;

  ContinuoText* text_;
  ContinuoTokenTable table_;  // of text_
  size_t max_token_bytes_ = 1;
  std::string tokenizer_source_;
  std::string tokenizer_digest_, template_digest_;
  std::vector<std::string> warnings_;
  ResponseFormat response_format_;
  absl::Status response_template_status_;
  bool arguments_are_text_ = false;  // the template wants a call's arguments as text
};

}  // namespace continuo::text
