# SPDX-License-Identifier: Apache-2.0
# The headers of GoogleTest, gRPC and the messages take seconds to parse; tests that are compiled without
# optimisation parse them once, not once a source. A source includes what it uses all the same, and compiles
# without them (-DCONTINUO_PRECOMPILED_HEADERS=OFF). Optimised sources take no part: GCC 12 then no longer
# sees that the code of std::string is a system header's, and warns of it.
option(CONTINUO_PRECOMPILED_HEADERS "Parse the headers that most tests include once" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Clang wants the same macros and warnings for all that share them.
  set(CONTINUO_PRECOMPILED_HEADERS OFF)
endif()

# Called once, when the targets of proto/ are there.
function(continuo_make_precompiled)
  if(NOT CONTINUO_PRECOMPILED_HEADERS OR NOT CONTINUO_TESTS)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc CONTENT "// Headers alone.\n")
  add_library(continuo_precompiled_test OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(continuo_precompiled_test PRIVATE absl::statusor absl::strings absl::synchronization
    absl::time GTest::gmock GTest::gtest)
  set(headers <memory> <string> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/synchronization/mutex.h> <absl/time/time.h> <gmock/gmock.h> <gtest/gtest.h>)
  if(TARGET continuo::proto)
    list(APPEND headers <grpcpp/grpcpp.h> <continuo/v1/inference.grpc.pb.h> <continuo/v1/worker.grpc.pb.h>)
    target_link_libraries(continuo_precompiled_test PRIVATE continuo::proto)
  elseif(TARGET continuo::proto_messages)
    list(APPEND headers <continuo/v1/inference.pb.h>)
    target_link_libraries(continuo_precompiled_test PRIVATE continuo::proto_messages)
  endif()
  target_precompile_headers(continuo_precompiled_test PRIVATE ${headers})
  # ccache has handed a checkout the headers of another one, whose messages had other fields.
  set_target_properties(continuo_precompiled_test PROPERTIES C_COMPILER_LAUNCHER "" CXX_COMPILER_LAUNCHER "")
  # As programs' sources are compiled, and continuo_tests does.
  set_target_properties(continuo_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  target_compile_options(continuo_precompiled_test PRIVATE -fPIE -O0 -pthread)
endfunction()
