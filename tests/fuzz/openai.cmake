# SPDX-License-Identifier: Apache-2.0
if(TARGET continuo::gateway_openai)
  continuo_fuzzer(openai_request_fuzz.cc continuo::gateway_openai)
  continuo_fuzzer(openai_http_fuzz.cc continuo::gateway_openai continuo::fake_generation continuo::manual_clock)
  if(TARGET openai_http_fuzz)
    target_sources(openai_http_fuzz PRIVATE http_answer.cc)
    # GCC 12 takes the coroutine frames' own operator delete for the wrong one.
    target_compile_options(openai_http_fuzz PRIVATE -Wno-mismatched-new-delete)
  endif()
endif()
