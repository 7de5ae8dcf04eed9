# SPDX-License-Identifier: Apache-2.0
# CUDA and NCCL for CONTINUO_CUDA=ON:
#   continuo::cuda_headers    what compiles against them and NVML, which is opened where it is
#   continuo::cuda_libraries  what programs link: cudart, cublasLt, NCCL
#   continuo_cuda_kernels(name SRCS a.cu ...)  a library made by nvcc, for sm_80, sm_90a and PTX
# From the folder that scripts/setup.sh --cuda fills, or where CONTINUO_CUDA_TOOLKIT (with bin/nvcc)
# and CONTINUO_NCCL (with include/nccl.h) say: CUDA 13, or 12.9 (preset cuda12).

set(CONTINUO_CUDA_TOOLKIT ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13 CACHE PATH "CUDA toolkit")
set(CONTINUO_NCCL ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/nccl CACHE PATH "NCCL, headers and library")
if(NOT EXISTS ${CONTINUO_CUDA_TOOLKIT}/bin/nvcc OR NOT EXISTS ${CONTINUO_NCCL}/include/nccl.h)
  message(FATAL_ERROR "CONTINUO_CUDA is on, and there is no ${CONTINUO_CUDA_TOOLKIT}/bin/nvcc or no "
    "${CONTINUO_NCCL}/include/nccl.h: run scripts/setup.sh --cuda, or set CONTINUO_CUDA_TOOLKIT and CONTINUO_NCCL")
endif()
if(NOT EXISTS ${CONTINUO_CUDA_TOOLKIT}/include/nvml.h)
  message(FATAL_ERROR "there is no ${CONTINUO_CUDA_TOOLKIT}/include/nvml.h: run scripts/setup.sh --cuda "
    "(wheel nvidia-nvml-dev)")
endif()

set(CMAKE_CUDA_COMPILER ${CONTINUO_CUDA_TOOLKIT}/bin/nvcc)
if(NOT CMAKE_CUDA_HOST_COMPILER)  # CUDA 13.0 takes up to g++ 15, 12.4 up to g++ 13
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
# glibc 2.42 and later declare rsqrt for _GNU_SOURCE, and not as CUDA 13.0 does.
string(APPEND CMAKE_CUDA_FLAGS " -Xcompiler=-U_GNU_SOURCE,-D_DEFAULT_SOURCE")
set(CMAKE_CUDA_ARCHITECTURES OFF)  # continuo_cuda_kernels says them
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # continuo::cuda_libraries has it
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
# Programs are linked by the C++ compiler, with continuo::cuda_libraries and nothing of nvcc's host compiler.
set(CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES "")
set(CMAKE_CUDA_IMPLICIT_LINK_LIBRARIES "")
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

find_library(CONTINUO_CUDART cudart HINTS ${CONTINUO_CUDA_TOOLKIT} PATH_SUFFIXES lib lib64 REQUIRED NO_DEFAULT_PATH)
find_library(CONTINUO_CUBLASLT cublasLt HINTS ${CONTINUO_CUDA_TOOLKIT} PATH_SUFFIXES lib lib64 REQUIRED NO_DEFAULT_PATH)
find_library(CONTINUO_NCCL_LIBRARY nccl HINTS ${CONTINUO_NCCL} PATH_SUFFIXES lib lib64 REQUIRED NO_DEFAULT_PATH)

add_library(continuo_cuda_headers INTERFACE)
target_include_directories(continuo_cuda_headers SYSTEM INTERFACE
  ${CONTINUO_CUDA_TOOLKIT}/include ${CONTINUO_NCCL}/include)
add_library(continuo::cuda_headers ALIAS continuo_cuda_headers)

add_library(continuo_cuda_libraries INTERFACE)
target_link_libraries(continuo_cuda_libraries INTERFACE
  ${CONTINUO_CUDART} ${CONTINUO_CUBLASLT} ${CONTINUO_NCCL_LIBRARY})
add_library(continuo::cuda_libraries ALIAS continuo_cuda_libraries)

# Machine code for A100 (sm_80) and H100, H200 (sm_90a: wgmma, TMA); PTX that drivers compile for
# what is newer. No contraction of a*b+c that is not written, as on the host.
function(continuo_cuda_kernels name)
  cmake_parse_arguments(ARG "" "" "SRCS" ${ARGN})
  add_library(continuo_${name} STATIC ${ARG_SRCS})
  target_include_directories(continuo_${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(continuo_${name} PRIVATE continuo::cuda_headers)
  target_compile_options(continuo_${name} PRIVATE
    --generate-code=arch=compute_80,code=sm_80 --generate-code=arch=compute_90a,code=sm_90a
    --generate-code=arch=compute_90,code=compute_90
    --fmad=false --expt-relaxed-constexpr -Werror=all-warnings -Xcompiler=-Wall,-Wextra,-Werror,-fPIC)
endfunction()
