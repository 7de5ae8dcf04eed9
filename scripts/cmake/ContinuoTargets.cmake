# SPDX-License-Identifier: Apache-2.0
# One folder, one library: continuo_library(engine SRCS ... DEPS ...) makes continuo::engine.

set(CONTINUO_WARNINGS -Wall -Wextra -Werror -Wno-missing-field-initializers)

# Compiles a target's sources as one. Headers of gRPC, Abseil and Boost are most of what a source of services/
# costs to compile, and a folder parses them once this way. Names in anonymous namespaces differ within a folder
# therefore. CMake's own UNITY_BUILD includes by absolute paths, which ccache cannot share between checkouts.
function(continuo_unite target folder)
  list(TRANSFORM ARGN REPLACE "(.+)" "#include \"${folder}/\\1\"" OUTPUT_VARIABLE includes)
  list(JOIN includes "\n" includes)
  set(united ${CMAKE_CURRENT_BINARY_DIR}/${target}.cc)
  file(CONFIGURE OUTPUT ${united} CONTENT "${includes}\n" @ONLY)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  target_sources(${target} PRIVATE ${united})
  # An anonymous namespace of an included source looks like that of a header to GCC.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
endfunction()

function(continuo_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(ARG_SRCS)
    add_library(continuo_${name} STATIC ${ARG_SRCS})
    target_include_directories(continuo_${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_compile_options(continuo_${name} PRIVATE ${CONTINUO_WARNINGS})
    target_link_libraries(continuo_${name} PUBLIC ${ARG_DEPS})
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    if(CONTINUO_UNITY_BUILD AND folder MATCHES "^services/")
      continuo_unite(continuo_${name} ${folder} ${ARG_SRCS})
    endif()
  else()
    add_library(continuo_${name} INTERFACE)
    target_include_directories(continuo_${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(continuo_${name} INTERFACE ${ARG_DEPS})
  endif()
  add_library(continuo::${name} ALIAS continuo_${name})
endfunction()

# continuo_binary(continuo-worker SRCS main.cc DEPS continuo::worker_server)
function(continuo_binary name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${CONTINUO_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
endfunction()

# Sets `out` to what a test program compiles for the sources that follow: instead of its tests generated sources of
# some 80 kB each, which hold one test behind the other (scripts/unite_tests.py).
function(continuo_unite_tests out name)
  set(united)
  set(batch)
  set(size 0)
  foreach(source IN LISTS ARGN ITEMS end)
    if(source MATCHES "_test\\.cc$")
      get_filename_component(source ${source} ABSOLUTE)
      file(SIZE ${source} bytes)
      math(EXPR size "${size} + ${bytes}")
      list(APPEND batch ${source})
    elseif(NOT source STREQUAL "end")
      list(APPEND united ${source})
    endif()
    if(batch AND (size GREATER 80000 OR source STREQUAL "end"))
      list(LENGTH united number)
      set(file ${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cc)
      list(LENGTH batch count)
      if(count EQUAL 1)
        set(file ${batch})
      else()
        add_custom_command(OUTPUT ${file} COMMAND ${PROJECT_SOURCE_DIR}/scripts/unite_tests.py ${file} ${batch}
          DEPENDS ${batch} ${PROJECT_SOURCE_DIR}/scripts/unite_tests.py VERBATIM)
      endif()
      list(APPEND united ${file})
      set(batch)
      set(size 0)
    endif()
  endforeach()
  set(${out} ${united} PARENT_SCOPE)
endfunction()

# continuo_tests(SRCS scheduler_test.cc block_pool_test.cc DEPS continuo::engine) in tests/worker/engine
# makes the test program worker_engine_test; each of its cases is a ctest of its own. With NAME what, the
# program is worker_engine_what_test, for tests that need labels, libraries or a heap of their own.
# LABELS slow marks what only `scripts/test.sh --all` runs.
function(continuo_tests)
  cmake_parse_arguments(ARG "" "NAME;TIMEOUT" "SRCS;DEPS;LABELS" ${ARGN})
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR}/tests ${CMAKE_CURRENT_SOURCE_DIR})
  set(name ${folder})
  if(ARG_NAME)
    string(APPEND name /${ARG_NAME})
  endif()
  string(REPLACE "/" "_" name ${name}_test)
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(CMAKE_CROSSCOMPILING)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")  # an emulator runs it
  endif()
  if(CONTINUO_UNITY_BUILD)
    continuo_unite_tests(ARG_SRCS ${name} ${ARG_SRCS})
  endif()
  add_executable(${name} ${ARG_SRCS})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${CONTINUO_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock_main)
  # Optimising takes a third of the time to compile tests, with a sanitizer half of it. Most tests compute
  # little by themselves; those that do are left out.
  if(NOT folder MATCHES "kernels|engine|model")
    target_compile_options(${name} PRIVATE -O0 -pthread)
    if(TARGET continuo_precompiled_test)
      target_precompile_headers(${name} REUSE_FROM continuo_precompiled_test)
    endif()
  endif()
  if(CONTINUO_SANITIZE MATCHES thread)
    target_sources(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/testing/tsan_suppressions.cc)
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  # One variable only: a list inside PROPERTIES does not reach the test.
  set(properties TIMEOUT ${ARG_TIMEOUT} ENVIRONMENT CONTINUO_SHARED=${CONTINUO_SHARED})
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  gtest_discover_tests(${name} TEST_PREFIX ${folder}/ DISCOVERY_MODE PRE_TEST
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTIES ${properties})
endfunction()

# continuo_bench(matmul_bench.cc continuo::kernels) makes build/<preset>/bench/matmul_bench. Benches are
# not part of a build unless its target is `benches`, or a test needs one.
add_custom_target(benches)
function(continuo_bench source)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  add_dependencies(benches ${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE ${CONTINUO_WARNINGS})
  target_link_libraries(${name} PRIVATE ${ARGN} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
endfunction()

# continuo_fuzzer(safetensors_fuzz.cc continuo::model): a libFuzzer program where
# CONTINUO_FUZZERS is on; else a program that runs each file given to it once, so that the
# corpus is a regression test in every build.
function(continuo_fuzzer source)
  get_filename_component(name ${source} NAME_WE)
  if(CONTINUO_FUZZERS)
    add_executable(${name} ${source})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${source} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
  endif()
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARGN})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  set(inputs ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
  # What fuzzing has found is kept as one archive a target, and unpacked beside the program.
  set(archive ${CMAKE_CURRENT_SOURCE_DIR}/grown/${name}.tar.xz)
  if(EXISTS ${archive})
    set(grown ${PROJECT_BINARY_DIR}/fuzz/grown/${name})
    add_custom_command(OUTPUT ${grown}.stamp
      COMMAND ${CMAKE_COMMAND} -E rm -rf ${grown}
      COMMAND ${CMAKE_COMMAND} -E make_directory ${grown}
      COMMAND ${CMAKE_COMMAND} -E chdir ${grown} ${CMAKE_COMMAND} -E tar xf ${archive}
      COMMAND ${CMAKE_COMMAND} -E touch ${grown}.stamp
      DEPENDS ${archive} VERBATIM)
    add_custom_target(${name}_grown DEPENDS ${grown}.stamp)
    add_dependencies(${name} ${name}_grown)
    list(APPEND inputs ${grown})
  endif()
  if(NOT CONTINUO_FUZZERS AND EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${name})
    add_test(NAME fuzz/${name} COMMAND ${name} ${inputs})
  endif()
endfunction()
