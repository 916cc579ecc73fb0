# Finds cuda.h: in the nvidia-cuda-runtime wheel that the build's Python has, else in a CUDA toolkit.
set(CUDA_INCLUDE_DIR "" CACHE PATH "Folder that holds cuda.h")
if(NOT CUDA_INCLUDE_DIR)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" "${CMAKE_CURRENT_LIST_DIR}/find_cuda_headers.py"
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT found)
    message(FATAL_ERROR "cuda.h was not found: install the package nvidia-cuda-runtime into the Python that builds, or a CUDA "
                        "toolkit, or name its folder with -DCUDA_INCLUDE_DIR=...")
  endif()
  set(CUDA_INCLUDE_DIR "${found}" CACHE PATH "Folder that holds cuda.h" FORCE)
endif()
message(STATUS "cuda.h: ${CUDA_INCLUDE_DIR}")
