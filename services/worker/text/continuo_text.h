/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The C functions that rust/ implements: tokenizers, chat templates and grammars. Only TextModel,
 * grammar/ and the tests of this folder call them.
 *
 * Strings are (pointer, length), never NUL-terminated; NULL with length 0 is the empty string.
 * What a call puts into an `out` argument belongs to the caller, who frees it with the matching
 * _free. A call that fails returns its code, or NULL, leaves `out` as it was, and keeps a message
 * for continuo_text_error() on the same thread. A ContinuoText never changes: calls on one may run
 * in parallel. A panic inside becomes CONTINUO_TEXT_INVALID_ARGUMENT; nothing unwinds through here.
 */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ContinuoText ContinuoText;

/* Numbered as absl::StatusCode. */
enum {
  CONTINUO_TEXT_OK = 0,
  CONTINUO_TEXT_INVALID_ARGUMENT = 3,
  CONTINUO_TEXT_NOT_FOUND = 5,
  CONTINUO_TEXT_RESOURCE_EXHAUSTED = 8,
  CONTINUO_TEXT_FAILED_PRECONDITION = 9,
  CONTINUO_TEXT_UNIMPLEMENTED = 12,
};

typedef struct {
  const char* data;
  size_t size;
} ContinuoSlice;

typedef struct {
  char* data;
  size_t size;
} ContinuoString;

typedef struct {
  int32_t* data;
  size_t size;
} ContinuoIds;

/* Bytes of a text, from `begin` to before `end`. */
typedef struct {
  size_t begin, end;
} ContinuoSpan;

typedef struct {
  ContinuoSpan* data;
  size_t size;
} ContinuoSpans;

/* The bytes of every token: token `id` has bytes[ends[id - 1]] up to bytes[ends[id]] (from 0 for
 * id 0), those of special tokens included. Lives as long as its ContinuoText. */
typedef struct {
  const uint8_t* bytes;
  const uint32_t* ends;      /* [num_tokens] */
  const uint8_t* is_special; /* [num_tokens], 0 or 1 */
  size_t num_tokens;         /* largest id + 1 */
  int collapses_repeats;     /* 1: a token equal to the one before it has no bytes (CTC) */
  int has_chat_template;     /* 0 or 1 */
  int keeps_bytes;           /* 1: every byte of a text is one of a token's */
} ContinuoTokenTable;

/* Code and message of this thread's last failed call; the message lives until its next one. */
int continuo_text_error_code(void);
ContinuoSlice continuo_text_error(void);

/* `tokenizer_file` is the name of a file in the folder: tokenizer.json, or one of the other kinds
 * that text_files.cc lists. */
ContinuoText* continuo_text_open(ContinuoSlice model_dir, ContinuoSlice tokenizer_file);
/* The same of the contents of such a file and of tokenizer_config.json; errors begin with `name`.
 */
ContinuoText* continuo_text_open_texts(ContinuoSlice name, ContinuoSlice tokenizer_file,
                                       ContinuoSlice tokenizer, ContinuoSlice config);
void continuo_text_free(ContinuoText* text);

void continuo_text_token_table(const ContinuoText* text, ContinuoTokenTable* out);

/* 64 lower-case hex digits each. Live as long as `text`. */
ContinuoSlice continuo_text_tokenizer_digest(const ContinuoText* text);
ContinuoSlice continuo_text_template_digest(const ContinuoText* text);

/* The tokenizer's algorithm, "byte-level BPE". Lives for ever. */
ContinuoSlice continuo_text_tokenizer_kind(const ContinuoText* text);

/* The source of the chat template, with that of the one for conversations with tools; and the JSON
 * of the model's response_template. Empty where there is none. Live as long as `text`. */
ContinuoSlice continuo_text_chat_template(const ContinuoText* text);
ContinuoSlice continuo_text_response_template(const ContinuoText* text);

/* Tells, a line each, what of the files is not used, or loses text: an eos_token that the
 * vocabulary lacks, messages of which the chat template shows nothing. Lives as long as `text`. */
ContinuoSlice continuo_text_warnings(const ContinuoText* text);

/* The tokens that end an answer, ascending: what the files call eos_token, and the token that the
 * chat template closes a turn of the assistant with. `known` are ends that other files name.
 * Renders a few short conversations. */
int continuo_text_end_ids(const ContinuoText* text, const int32_t* known, size_t num_known,
                          ContinuoIds* out);

/* The token as the vocabulary writes it; empty for an id that names none. */
int continuo_text_token_name(const ContinuoText* text, int32_t id, ContinuoString* out);

/* Tells a client what it needs to tokenise and to render the chat template itself:
 * tokenizer_config.json as a JSON object, special tokens as plain text, `chat_template` as it is
 * used. `end_id` is its eos_token where the files name none; -1: null. At most 2 MiB: the largest
 * members are left out until it fits. */
int continuo_text_tokenizer_info(const ContinuoText* text, int32_t end_id, ContinuoString* out);

int continuo_text_encode(const ContinuoText* text, ContinuoSlice utf8, int add_special,
                         ContinuoIds* out);

/* Encodes two texts as the tokenizer joins them, with its special tokens. Those written in the
 * texts, and other control tokens, are text unless `parse_special` is 1. `types` has as many
 * entries as `out`: the part of the whole that the tokenizer counts each token to, from 0 on.
 * `second_tokens` gets the tokens of the second text; an empty span where it has none. */
int continuo_text_encode_pair(const ContinuoText* text, ContinuoSlice first, ContinuoSlice second,
                              int parse_special, ContinuoIds* out, ContinuoIds* types,
                              ContinuoSpan* second_tokens);

/* `request_json` is an object: messages (array), tools and documents (any; null where absent),
 * add_generation_prompt and continue_final_message (booleans), template_arguments (a string that
 * holds a JSON object, or the empty string), chat_template (a string: rendered instead of the
 * model's; empty: the model's), now_seconds (integer). `content`, unless NULL, gets the ascending
 * spans of the text that come from the request and are text; what is between them is the
 * template's, or a tag of an answer. A last span that is empty ends such a tag. */
int continuo_text_render_chat(const ContinuoText* text, ContinuoSlice request_json,
                              ContinuoString* out, ContinuoSpans* content);

/* Encodes a rendered conversation without special tokens of the tokenizer's own. Control tokens
 * written in `content` are text: special tokens, and those that the chat template writes. */
int continuo_text_encode_chat(const ContinuoText* text, ContinuoSlice utf8, ContinuoSpans content,
                              ContinuoIds* out);

/* Renders with the text of a template alone: no special tokens, contents in the form that they
 * have. For tests, which compare with Jinja2. */
int continuo_text_render_template(ContinuoSlice chat_template, ContinuoSlice request_json,
                                  ContinuoString* out);

/* A grammar that answers obey, compiled for one model's vocabulary, which must outlive it. The
 * first one of a ContinuoText takes longer and needs memory for the vocabulary (some 100 bytes a
 * token). A ContinuoGrammar never changes: calls on one may run in parallel. */
typedef struct ContinuoGrammar ContinuoGrammar;
/* One answer on its way through a grammar. One thread at a time; shares nothing with others. */
typedef struct ContinuoMatcher ContinuoMatcher;

enum {
  CONTINUO_GRAMMAR_JSON_SCHEMA = 0, /* source: the schema */
  CONTINUO_GRAMMAR_JSON_OBJECT = 1, /* source: empty */
  CONTINUO_GRAMMAR_REGEX = 2,       /* source: what the whole answer matches */
  CONTINUO_GRAMMAR_CHOICE = 3,      /* source: a JSON array of strings */
  CONTINUO_GRAMMAR_LARK = 4,        /* source: Lark in the dialect of llguidance */
  CONTINUO_GRAMMAR_OWN_LARK = 5,    /* the same, not of a client's rules: with wider bounds */
};

/* NULL where the source is refused, also because it needs more than the bounds on operations
 * allow. `around`, if it is not empty, is Lark that is not of a client's rules and has the source
 * as
 * @text; the source was compiled alone before. */
ContinuoGrammar* continuo_grammar_compile(const ContinuoText* text, int kind, ContinuoSlice source,
                                          ContinuoSlice around);
void continuo_grammar_free(ContinuoGrammar* grammar);

ContinuoMatcher* continuo_matcher_new(const ContinuoGrammar* grammar);
ContinuoMatcher* continuo_matcher_clone(const ContinuoMatcher* matcher);
void continuo_matcher_free(ContinuoMatcher* matcher);

/* Clears the bits of ids that must not come next: bit id % 32 of word id / 32. Ids outside of the
 * vocabulary must not; what ends an answer is the caller's affair. */
void continuo_matcher_fill_mask(ContinuoMatcher* matcher, uint32_t* words, size_t num_words);
/* 1; 0 for an id that must not come next, and after a failure: nothing has changed then. */
int continuo_matcher_accept(ContinuoMatcher* matcher, int32_t id);
/* Takes the last `count` accepted ids back, and a failure since; so many must have been. */
void continuo_matcher_rollback(ContinuoMatcher* matcher, size_t count);
/* 1 where the answer may end here, and where only an end may come. */
int continuo_matcher_can_end(ContinuoMatcher* matcher);
int continuo_matcher_must_end(ContinuoMatcher* matcher);
/* OK, or why the matcher failed: RESOURCE_EXHAUSTED where a step needs more than the bounds on
 * operations allow, FAILED_PRECONDITION where the vocabulary cannot write what must come. Such a
 * matcher clears and accepts nothing, and cannot end. */
int continuo_matcher_status(const ContinuoMatcher* matcher);

void continuo_string_free(ContinuoString string);
void continuo_ids_free(ContinuoIds ids);
void continuo_spans_free(ContinuoSpans spans);

#ifdef __cplusplus
}
#endif
