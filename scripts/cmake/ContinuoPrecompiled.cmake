# SPDX-License-Identifier: Apache-2.0
# Headers that take seconds to parse are parsed once, not once a source: those of gRPC with the stubs, and
# those of tests. A source includes what it uses all the same, and compiles without them
# (-DCONTINUO_PRECOMPILED_HEADERS=OFF). continuo_use_precompiled(target grpc|test).
option(CONTINUO_PRECOMPILED_HEADERS "Parse the headers of gRPC and of tests once" ON)
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Clang wants the same macros and warnings for all that share them.
  set(CONTINUO_PRECOMPILED_HEADERS OFF)
endif()

function(continuo_use_precompiled target name)
  if(CONTINUO_PRECOMPILED_HEADERS AND TARGET continuo_precompiled_${name})
    target_precompile_headers(${target} REUSE_FROM continuo_precompiled_${name})
    # GCC 12 forgets that std::string's own code is a system header's, and warns of lengths it cannot have.
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-restrict)
  endif()
endfunction()

# Called once, when the targets of proto/ are there.
function(continuo_make_precompiled)
  if(NOT CONTINUO_PRECOMPILED_HEADERS)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc CONTENT "// Headers alone.\n")
  set(headers <memory> <string> <vector> <absl/status/statusor.h> <absl/strings/str_cat.h>
    <absl/synchronization/mutex.h> <absl/time/time.h>)
  set(libraries absl::statusor absl::strings absl::synchronization absl::time)
  if(TARGET continuo::proto)
    list(APPEND headers <grpcpp/grpcpp.h> <continuo/v1/inference.grpc.pb.h> <continuo/v1/worker.grpc.pb.h>)
    list(APPEND libraries continuo::proto)
    add_library(continuo_precompiled_grpc OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc)
    target_link_libraries(continuo_precompiled_grpc PRIVATE ${libraries})
    target_precompile_headers(continuo_precompiled_grpc PRIVATE ${headers})
  elseif(TARGET continuo::proto_messages)
    list(APPEND headers <continuo/v1/inference.pb.h>)
    list(APPEND libraries continuo::proto_messages)
  endif()
  if(CONTINUO_TESTS)
    add_library(continuo_precompiled_test OBJECT EXCLUDE_FROM_ALL ${CMAKE_CURRENT_BINARY_DIR}/precompiled.cc)
    target_link_libraries(continuo_precompiled_test PRIVATE ${libraries} GTest::gmock GTest::gtest)
    target_precompile_headers(continuo_precompiled_test PRIVATE ${headers} <gmock/gmock.h> <gtest/gtest.h>)
    # As programs' sources are compiled, and continuo_tests does.
    set_target_properties(continuo_precompiled_test PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(continuo_precompiled_test PRIVATE -fPIE -O0 -pthread)
  endif()
endfunction()
