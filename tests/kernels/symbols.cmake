# SPDX-License-Identifier: Apache-2.0
# cmake -DNM=nm -DOBJECTS=a.o;b.o -P symbols.cmake: fails where an object defines a weak symbol. Such
# a symbol, compiled with an instruction set's flags, could become the whole program's.
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE symbols
    RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "nm ${object} failed")
  endif()
  string(REGEX MATCHALL "[^\n]* [VWuvw] [^\n]*" weak "${symbols}")
  if(weak)
    message(FATAL_ERROR "${object} defines weak symbols:\n${weak}")
  endif()
  if(NOT symbols MATCHES "Kernels|PanelBlock")
    message(FATAL_ERROR "${object} defines no table and no loop of panels")
  endif()
endforeach()
