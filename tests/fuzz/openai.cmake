# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::gateway_openai_json)
  continuo_fuzzer(openai_request_fuzz.cc continuo::gateway_openai_json)
endif()
