# SPDX-License-Identifier: Apache-2.0
# For tests in which one thread waits for another with an absl::Mutex.
add_library(continuo_tsan_suppressions OBJECT ${CMAKE_CURRENT_LIST_DIR}/tsan_suppressions.cc)
add_library(continuo::tsan_suppressions ALIAS continuo_tsan_suppressions)
