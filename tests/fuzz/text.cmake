# SPDX-License-Identifier: Apache-2.0
continuo_fuzzer(text_tokenizer_json_fuzz.cc continuo::text)
continuo_fuzzer(text_conversation_fuzz.cc continuo::text)
continuo_fuzzer(text_template_fuzz.cc continuo::text)
continuo_fuzzer(text_detokenizer_fuzz.cc continuo::text)
continuo_fuzzer(text_response_fuzz.cc continuo::text_response)
continuo_fuzzer(text_calls_fuzz.cc continuo::text_calls)
